/* The doctor (--doctor, /doctor): what of this machine makes models slow, or keeps them from
 * running, each with its remedy. A check is a function and an entry in the table of checks.c; what
 * it finds are findings. Whoever owns the struct uses it; one thread at a time.
 *
 * First everything is measured (doctor_measure: memory, drivers, models; seconds), then judged
 * (doctor_examine: reads files below `root`, never waits), so tests judge machines made of files
 * and figures. What cannot be read is a finding that says so, never a guess. */
#ifndef APP_DOCTOR_DOCTOR_H
#define APP_DOCTOR_DOCTOR_H

#include "app/options/options.h"
#include "engine/base/strbuf.h"
#include "engine/device/cpu/shape_table.h"
#include "engine/device/device.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOCTOR_FINDINGS 64
#define DOCTOR_MODELS 8
#define DOCTOR_COMMANDS 3

/* ok: as it should be. note: worth knowing, or unreadable. warn: costs speed or a device. bad:
 * moetop cannot do its work; the exit status is 1. */
enum doctor_level { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_WARN, DOCTOR_BAD };

/* Texts are UTF-8 on one line without control characters, whatever the machine's files hold. */
struct doctor_finding {
    enum doctor_level level;
    char subject[24], found[360];
    char remedy[240];  /* "": none is needed */
    char command[200]; /* a line for a shell that applies the remedy; "": there is no such line */
};

/* A line worth typing. */
struct doctor_command {
    char line[PATH_MAX + 64], why[120];
};

struct doctor_model {
    char path[PATH_MAX], name[200];
    char why_not[300]; /* it cannot be opened; "": it can, and what follows is valid */
    bool chosen;       /* the one that this moetop would start with */
    bool fits;
    char fits_with[160]; /* flags with which it fits, where it does not; "": none are known */
    uint64_t bytes, needed;
    int context; /* the largest that fits */
    /* tokens/s that the memory, or the disk, allows; 0: unknown */
    double rate;
    bool in_cache; /* its weights fit in the CPU's cache, which memory does not limit */
};

struct doctor_device {
    struct device_info info;
    char selftest[400]; /* of its kernels; "": not tested */
    char failed[300];   /* it could not be opened for the test; "": it could */
    double read_rate;   /* bytes/s of weights; 0: not measured */
};

/* Measured by doctor_measure; tests fill it in. */
struct doctor_measures {
    int threads;
    double memory_rate; /* bytes/s of all threads; 0: not measured */
    double disk_rate;   /* bytes/s of random reads past the page cache; 0: not measured */
    char disk_of[PATH_MAX];
    char kernels[16]; /* the CPU's set in use, "avx2" */
    int n_devices;    /* besides the CPU */
    struct doctor_device devices[DEVICE_MAX];
    struct tune_count tuned; /* kernel choices in the cache folder */
    char drivers[512]; /* why there is none, or which drivers were left out; "": nothing to say */
    size_t n_models, all_models; /* listed here; found on this machine */
    struct doctor_model models[DOCTOR_MODELS];
};

/* What the program sees of its surroundings besides files; strings belong to the caller. */
struct doctor_place {
    const char *root;  /* "" for this machine; tests: a folder with proc, sys, dev, etc */
    const char *cache; /* the cache folder; NULL: none can be used */
    char cache_why[300];
    const char *vendors;                    /* OCL_ICD_VENDORS; NULL: /etc/OpenCL/vendors */
    const char *term, *colorterm, *codeset; /* NULL: not set */
    bool terminal, no_color;
    int colours; /* of the terminal's description; -1: no such description */
    int columns, rows;
    /* whether this user may read and write a device file */
    bool (*may_use)(const char *path);
};

struct doctor {
    struct doctor_place place;
    struct doctor_measures measures;
    int n;
    struct doctor_finding findings[DOCTOR_FINDINGS];
    struct doctor_command commands[DOCTOR_COMMANDS];
    int n_commands;
    char machine[160]; /* "AMD Ryzen 7 7840U, 16 CPUs, 30 GiB of memory" */
};

/* Which models and settings to look at: copies, so that another thread may measure. */
struct doctor_asked;
/* Main thread: the environment, the terminal and the options are read. ERR_USAGE, ERR_MEMORY. */
int doctor_ask(struct doctor_asked **out, const struct options *o, struct doctor_place *place,
               struct error *e);
void doctor_asked_free(struct doctor_asked *a); /* accepts NULL */
/* Measures this machine for some seconds; any thread, the GPU's first self-test takes up to a
 * minute. held: bytes that a model open in this process would give back. tell (may be NULL): a line
 * of progress. */
void doctor_measure(const struct doctor_asked *a, uint64_t held, struct doctor_measures *out,
                    void (*tell)(void *ctx, const char *line), void *ctx);

/* Runs every check: d->place and d->measures to findings and commands. */
void doctor_examine(struct doctor *d);
int doctor_count(const struct doctor *d, enum doctor_level level);
const char *doctor_level_word(enum doctor_level level); /* "ok", "note", "warn", "bad" */

/* The page, wrapped to `columns` (40 to 120 are kept). */
void doctor_print(const struct doctor *d, struct strbuf *out, int columns, bool colour);
struct json_t;
struct json_t *doctor_json(const struct doctor *d); /* NULL: no memory */

/* The mode. ERR_INPUT: something is bad. */
bool doctor_wanted(const struct options *o);
int doctor_run(struct options *o, struct error *e);

#endif
