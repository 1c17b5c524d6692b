/* The options of moetop: one row each in app/options/options.def, from which the parser, --help,
 * the man pages, the shell completion, the configuration file, the environment and --print-config
 * are made. Thread: the main thread fills them before anything else starts; afterwards only the UI
 * thread changes them (/set).
 *
 * TO ADD A FLAG write one row in app/options/options.def, in the group where --help should show it.
 * Nothing else: the typed field in struct options, the environment variable MOETOP_<NAME>, the key
 * of config.yaml and all documents follow from it (run `make docs` so that the committed man pages
 * and completions agree; tests/check_docs.c insists). To add a MODE (something moetop does instead
 * of chatting) write the row of its flag and one row in app/modes.c.
 *
 * Precedence: flag > environment > configuration file > the settings beside the model
 * > what the model's own file recommends > default. Every value remembers where it came from, and a
 * weaker source never overwrites a stronger one, so the sources may be read in any order. */
#ifndef APP_OPTIONS_OPTIONS_H
#define APP_OPTIONS_OPTIONS_H

#include "engine/base/error.h"
#include "engine/text/chat_formats.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* type, C type of the field, values.
 * FLAG  --name, --no-name; in files and the environment true/false, yes/no, on/off, 1/0
 * INT, REAL  a number within min..max; SEED: 0 .. 2^64-1, or -1 for a new one each time
 * SIZE  bytes: 4096, 600M, 1.5G (binary units)
 * WORD  one of the words ("auto|always|never"); the field is the word's index; a word marked *
 *   is the value of the flag alone
 * TEXT  any text; PATH: a file or folder, ~/ is the home directory; NULL if not given
 * LIST  texts; the flag may be repeated; in files a sequence. An argument of several words
 *   ("TYPE IN OUT") takes as many values */
/* clang-format off */
#define OPTION_TYPES(X)         \
    X(FLAG, bool)               \
    X(INT,  int)                \
    X(REAL, double)             \
    X(SEED, uint64_t)           \
    X(SIZE, uint64_t)           \
    X(WORD, int)                \
    X(TEXT, char *)             \
    X(PATH, char *)             \
    X(LIST, struct option_list)
/* clang-format on */

/* Order and headings of --help and the man page. */
/* clang-format off */
#define OPTION_GROUPS(X)                  \
    X(ANSWER,    "What to answer")        \
    X(MODEL,     "Model and engine")      \
    X(SAMPLING,  "Sampling")              \
    X(DRAFTS,    "Drafts (speculation)")  \
    X(PLACEMENT, "Devices and placement") \
    X(SCREEN,    "Screen")                \
    X(HEADLESS,  "Without a screen")      \
    X(SERVE,     "Serving")               \
    X(MEASURE,   "Measuring")             \
    X(TRAINING,  "Training")              \
    X(TOOLS,     "Tools")                 \
    X(PROGRAM,   "Program")
/* clang-format on */

#define OPTION_SEED_RANDOM UINT64_MAX

/* Where an option is allowed besides the command line (bits). */
enum {
    OPTION_LINE = 0,                /* nowhere else: an action of this run */
    OPTION_FILE = 1,                /* configuration file and environment */
    OPTION_MODEL = 2 | OPTION_FILE, /* also in the settings file beside a model */
    OPTION_LIVE = 4,                /* /set changes it in a chat */
};

struct option_list {
    char **items;
    size_t n;
};

enum option_type {
#define X(type, c) OPTION_##type,
    OPTION_TYPES(X)
#undef X
};

enum option_group {
#define X(group, heading) GROUP_##group,
    OPTION_GROUPS(X)
#undef X
        GROUP_COUNT
};

/* Lowest precedence first. */
enum option_origin {
    ORIGIN_DEFAULT,
    ORIGIN_RECOMMENDED, /* by the model's authors: app/setup/recommended.h */
    ORIGIN_MODEL,
    ORIGIN_SITE,
    ORIGIN_CONFIG,
    ORIGIN_ENVIRONMENT,
    ORIGIN_FLAG,
    ORIGIN_CHAT
};

#define OPTION_C_FLAG bool
#define OPTION_C_INT int
#define OPTION_C_REAL double
#define OPTION_C_SEED uint64_t
#define OPTION_C_SIZE uint64_t
#define OPTION_C_WORD int
#define OPTION_C_TEXT char *
#define OPTION_C_PATH char *
#define OPTION_C_LIST struct option_list

enum option_id {
#define OPTION(field, ...) OPTION_ID_##field,
#include "app/options/options.def"
#undef OPTION
    OPTION_COUNT
};

/* The words of --reasoning, in the table's order. */
enum { REASONING_AUTO, REASONING_ON, REASONING_OFF };

/* The values. Strings and lists are owned by the struct. */
struct options {
#define OPTION(field, type, ...) OPTION_C_##type field;
#include "app/options/options.def"
#undef OPTION
    struct {
        enum option_origin from;
        /* "--temp", "MOETOP_TEMP", "/etc/xdg/moetop/config.yaml:3"; NULL: default */
        char *where;
    } origin[OPTION_COUNT];
};

struct option {
    const char *name; /* canonical: the long flag without dashes, and the key in files */
    /* further spellings as typed, separated by spaces: "-n --predict" */
    const char *others;
    const char *argument; /* "N", "FILE"; empty for FLAG */
    const char *fallback; /* the default as one would write it; empty: not set */
    double min, max;      /* INT, REAL, SIZE, SEED */
    /* WORD: its values; INT, REAL: a word for 0 ("off", "auto"); TEXT: values to complete, or empty
     */
    const char *words;
    const char *help; /* one sentence, no full stop, for --help */
    const char *more; /* further sentences for the man page, or empty */
    enum option_type type;
    enum option_group group;
    int place; /* OPTION_FILE, ... */
    size_t offset;
};

extern const struct option option_table[OPTION_COUNT];
const char *option_group_heading(enum option_group g);

/* All defaults. ERR_MEMORY. */
int options_init(struct options *o, struct error *e);
void options_release(struct options *o);

/* Command line. ERR_USAGE names the flag and, for an unknown one, the nearest spelling. */
int options_parse(struct options *o, int argc, char *const *argv, struct error *e);
/* MOETOP_… variables; unknown ones with that prefix are ignored: app/main.c warns about them. */
int options_environment(struct options *o, char *const *environment, struct error *e);
/* One value from one source; ignored (0) if a stronger source has set it. `where` names the source
 * in errors and --print-config. LIST: the first call of a source discards the items of weaker ones;
 * later calls append. */
int options_set(struct options *o, const struct option *option, const char *value,
                enum option_origin from, const char *where, struct error *e);
/* Only records the source of a value that options_set took (0 if a stronger one had set it).
 * ERR_MEMORY. */
int options_note_origin(struct options *o, const struct option *option, enum option_origin from,
                        const char *where, struct error *e);

/* Resets the option to its default, as if no source had set it. ERR_MEMORY. */
int options_unset(struct options *o, const struct option *option, struct error *e);

/* A second set of options with the same values and origins (LIST options too). ERR_MEMORY. */
int options_copy(struct options *to, const struct options *from, struct error *e);

/* By canonical name, with or without leading dashes, or any other spelling; NULL: none. */
const struct option *options_find(const char *name);
/* Best guess for a misspelled name among options allowed at `place` (0: the command line); NULL:
 * none is near. */
const struct option *options_nearest(const char *name, int place);

/* The value as one would write it in a file; the number of characters it needs, like snprintf.
 * LIST: items joined by ", ". */
int option_value(const struct options *o, const struct option *option, char *out, size_t size);
bool option_is_set(const struct options *o, enum option_id id); /* anything but its default */
/* "default", "flag --temp", "environment MOETOP_TEMP", "file /…/config.yaml:3" */
void option_origin_text(const struct options *o, const struct option *option, char *out,
                        size_t size);
/* "MOETOP_TOP_K" */
void option_variable(const struct option *option, char *out, size_t size);
/* Reads 600M, 1.5G, 4096 (also used by the planners' arguments). ERR_USAGE. */
int option_parse_size(const char *text, uint64_t *out, struct error *e);
/* Word number i of a WORD option into out; false: there is none. */
bool option_word(const struct option *option, int i, char *out, size_t size);

#endif
