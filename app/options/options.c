/* The option table: defaults, parsing, precedence, printing. Main thread; the table itself is
 * constant. One function (options_set) converts text to a value, whatever the source, so that a
 * flag, a variable and a key of a file accept exactly the same spellings. */
#include "app/options/options.h"

#include "app/common/did_you_mean.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const struct option option_table[OPTION_COUNT] = {
#define OPTION(field, t, g, p, n, o, a, d, lo, hi, w, h, m) \
    [OPTION_ID_##field] = {.name = n,                       \
                           .others = o,                     \
                           .argument = a,                   \
                           .fallback = d,                   \
                           .min = lo,                       \
                           .max = hi,                       \
                           .words = w,                      \
                           .help = h,                       \
                           .more = m,                       \
                           .type = OPTION_##t,              \
                           .group = GROUP_##g,              \
                           .place = p,                      \
                           .offset = offsetof(struct options, field)},
#include "app/options/options.def"
#undef OPTION
};

static const char *const headings[GROUP_COUNT] = {
#define X(group, heading) [GROUP_##group] = heading,
    OPTION_GROUPS(X)
#undef X
};

const char *option_group_heading(enum option_group g)
{
    return headings[g];
}

static size_t option_id_of(const struct option *option)
{
    return (size_t)(option - option_table);
}

static void *field_of(const struct options *o, const struct option *option)
{
    return (char *)o + option->offset;
}

/* ---- words ---- */

/* The i-th word of "auto|always*|never" as start and length, without the mark; NULL past the end.
 */
static const char *word_at(const char *words, int i, size_t *n, bool *marked)
{
    const char *p = words;

    while (*p) {
        size_t len = strcspn(p, "|");

        if (i-- == 0) {
            *marked = len && p[len - 1] == '*';
            *n = len - *marked;
            return p;
        }
        p += len + (p[len] == '|');
    }
    return NULL;
}

bool option_word(const struct option *option, int i, char *out, size_t size)
{
    size_t n;
    bool marked;
    const char *w = word_at(option->words, i, &n, &marked);

    if (w)
        snprintf(out, size, "%.*s", (int)n, w);
    return w != NULL;
}

static int word_index(const struct option *option, const char *text)
{
    size_t n;
    bool marked;
    const char *w;

    for (int i = 0; (w = word_at(option->words, i, &n, &marked)); i++)
        if (strlen(text) == n && strncasecmp(w, text, n) == 0)
            return i;
    return -1;
}

/* Index of the word used for the flag without a value, -1: it needs a value. */
static int word_implied(const struct option *option)
{
    size_t n;
    bool marked;

    for (int i = 0; word_at(option->words, i, &n, &marked); i++)
        if (marked)
            return i;
    return -1;
}

/* ---- values ---- */

int option_parse_size(const char *text, uint64_t *out, struct error *e)
{
    static const char units[] = "KMGT";
    const char *unit;
    char *end;
    double v, factor = 1;

    errno = 0;
    v = strtod(text, &end);
    if (end == text || v < 0 || !isfinite(v) || isspace((unsigned char)*text))
        return error_set(e, ERR_USAGE, "'%s' is no size; write 4096, 600M or 1.5G", text);
    if (*end && (unit = strchr(units, toupper((unsigned char)*end)))) {
        factor = ldexp(1, 10 * (int)(unit - units + 1));
        end++;
        if (*end == 'i')
            end++;
    }
    if (*end == 'B' || *end == 'b')
        end++;
    if (*end || v * factor >= 9e18)
        return error_set(e, ERR_USAGE, "'%s' is no size; write 4096, 600M or 1.5G", text);
    *out = (uint64_t)(v * factor);
    return 0;
}

static int parse_flag(const char *text, bool *out, struct error *e)
{
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no",
                                                                                "off", "0"};

    for (size_t i = 0; i < 4; i++) {
        if (!strcasecmp(text, yes[i]))
            return *out = true, 0;
        if (!strcasecmp(text, no[i]))
            return *out = false, 0;
    }
    return error_set(e, ERR_USAGE, "'%s' is neither true nor false", text);
}

static int out_of_range(const struct option *option, const char *text, struct error *e)
{
    return error_set(e, ERR_USAGE, "%s is out of range; it must be between %.10g and %.10g", text,
                     option->min, option->max);
}

static int parse_real(const struct option *option, const char *text, double *out, struct error *e)
{
    char *end;

    if (*option->words && !strcasecmp(text, option->words))
        return *out = 0, 0;
    *out = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text) || !isfinite(*out))
        return error_set(e, ERR_USAGE, "'%s' is no number%s%s", text,
                         *option->words ? " and not " : "", option->words);
    if (*out < option->min || *out > option->max)
        return out_of_range(option, text, e);
    return 0;
}

static int parse_int(const struct option *option, const char *text, int *out, struct error *e)
{
    char *end;
    long v;

    if (*option->words && !strcasecmp(text, option->words))
        return *out = 0, 0;
    errno = 0;
    v = strtol(text, &end, 10);
    if (end == text || *end || isspace((unsigned char)*text))
        return error_set(e, ERR_USAGE, "'%s' is no whole number%s%s", text,
                         *option->words ? " and not " : "", option->words);
    if (errno || (double)v < option->min || (double)v > option->max)
        return out_of_range(option, text, e);
    *out = (int)v;
    return 0;
}

static int parse_seed(const char *text, uint64_t *out, struct error *e)
{
    char *end;

    if (!strcmp(text, "-1") || !strcasecmp(text, "random"))
        return *out = OPTION_SEED_RANDOM, 0;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno || *out == OPTION_SEED_RANDOM)
        return error_set(
            e, ERR_USAGE,
            "'%s' is no seed; write 0 to 18446744073709551614, or -1 for a new one each time",
            text);
    return 0;
}

static int parse_word(const struct option *option, const char *text, int *out, struct error *e)
{
    char list[200] = "";
    size_t at = 0, n;
    bool marked;
    const char *w;
    int i = word_index(option, text);

    if (i >= 0)
        return *out = i, 0;
    for (i = 0; (w = word_at(option->words, i, &n, &marked)) && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%.*s", i ? ", " : "", (int)n, w);
    return error_set(e, ERR_USAGE, "'%s' is none of %s", text, list);
}

static int parse_path(const char *text, char **out, struct error *e)
{
    const char *home = getenv("HOME");
    size_t size;
    char *p;

    if (strncmp(text, "~/", 2) || !home)
        p = mem_string(text);
    else if ((p = mem_alloc(size = strlen(home) + strlen(text), 1)))
        snprintf(p, size, "%s%s", home, text + 1);
    if (!p)
        return error_set(e, ERR_MEMORY, "out of memory");
    mem_free(*out);
    *out = p;
    return 0;
}

static int append_item(struct option_list *l, const char *text, struct error *e)
{
    if (!MEM_FIT(l->items, l->n + 1) || !(l->items[l->n] = mem_string(text)))
        return error_set(e, ERR_MEMORY, "out of memory");
    l->n++;
    return 0;
}

static void clear_list(struct option_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->items[i]);
    mem_free(l->items);
    *l = (struct option_list){0};
}

static int store(const struct option *option, void *field, const char *value, struct error *e)
{
    switch (option->type) {
    case OPTION_FLAG: return parse_flag(value, field, e);
    case OPTION_INT: return parse_int(option, value, field, e);
    case OPTION_REAL: return parse_real(option, value, field, e);
    case OPTION_SEED: return parse_seed(value, field, e);
    case OPTION_SIZE: return option_parse_size(value, field, e);
    case OPTION_WORD: return parse_word(option, value, field, e);
    case OPTION_PATH: return parse_path(value, field, e);
    case OPTION_LIST: return append_item(field, value, e);
    case OPTION_TEXT: {
        char *copy = mem_string(value);

        if (!copy)
            return error_set(e, ERR_MEMORY, "out of memory");
        mem_free(*(char **)field);
        *(char **)field = copy;
        return 0;
    }
    }
    return 0;
}

/* Bytes of the field that a rejected value may have changed; 0 for texts, which are replaced last.
 */
static size_t scalar_width(enum option_type type)
{
    switch (type) {
    case OPTION_FLAG: return sizeof(bool);
    case OPTION_INT:
    case OPTION_WORD: return sizeof(int);
    case OPTION_REAL:
    case OPTION_SEED:
    case OPTION_SIZE: return sizeof(uint64_t);
    default: return 0;
    }
}

int options_note_origin(struct options *o, const struct option *option, enum option_origin from,
                        const char *where, struct error *e)
{
    size_t id = option_id_of(option);
    char *place = where ? mem_string(where) : NULL;

    if (where && !place)
        return error_set(e, ERR_MEMORY, "out of memory");
    if (from < o->origin[id].from) {
        mem_free(place);
        return 0;
    }
    mem_free(o->origin[id].where);
    o->origin[id].where = place;
    o->origin[id].from = from;
    return 0;
}

int options_set(struct options *o, const struct option *option, const char *value,
                enum option_origin from, const char *where, struct error *e)
{
    size_t id = option_id_of(option);
    uint64_t kept;
    size_t width = scalar_width(option->type);
    void *field = field_of(o, option);
    int rc;

    if (from < o->origin[id].from)
        return 0;
    if (option->type == OPTION_LIST && from > o->origin[id].from)
        clear_list(field);
    /* A rejected value keeps the old one: /set with a wrong value must not change the chat. */
    memcpy(&kept, field, width);
    if ((rc = store(option, field, value, e)) < 0) {
        memcpy(field, &kept, width);
        return where ? error_prefix(e, "%s", where) : rc;
    }
    return options_note_origin(o, option, from, where, e);
}

int options_init(struct options *o, struct error *e)
{
    int rc;

    memset(o, 0, sizeof *o);
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (*option_table[i].fallback &&
            (rc = store(&option_table[i], field_of(o, &option_table[i]), option_table[i].fallback,
                        e)) < 0) {
            options_release(o);
            return rc;
        }
    return 0;
}

int options_unset(struct options *o, const struct option *option, struct error *e)
{
    size_t id = option_id_of(option);
    void *field = field_of(o, option);

    if (option->type == OPTION_LIST) {
        clear_list(field);
    } else if (option->type == OPTION_TEXT || option->type == OPTION_PATH) {
        mem_free(*(char **)field);
        *(char **)field = NULL;
    } else {
        memset(field, 0, scalar_width(option->type));
    }
    mem_free(o->origin[id].where);
    o->origin[id].where = NULL;
    o->origin[id].from = ORIGIN_DEFAULT;
    return *option->fallback ? store(option, field, option->fallback, e) : 0;
}

void options_release(struct options *o)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        void *field = field_of(o, &option_table[i]);

        if (option_table[i].type == OPTION_TEXT || option_table[i].type == OPTION_PATH)
            mem_free(*(char **)field);
        else if (option_table[i].type == OPTION_LIST)
            clear_list(field);
        mem_free(o->origin[i].where);
    }
    memset(o, 0, sizeof *o);
}

int options_copy(struct options *to, const struct options *from, struct error *e)
{
    int rc = options_init(to, e);

    for (int i = 0; i < OPTION_COUNT && rc >= 0; i++) {
        const struct option *o = &option_table[i];
        char value[4096 + 256];

        if (!option_is_set(from, (enum option_id)i))
            continue;
        if (o->type == OPTION_LIST) {
            const struct option_list *list =
                (const struct option_list *)(const void *)((const char *)from + o->offset);

            for (size_t k = 0; k < list->n && rc >= 0; k++)
                rc = options_set(to, o, list->items[k], from->origin[i].from, from->origin[i].where,
                                 e);
            continue;
        }
        if (option_value(from, o, value, sizeof value) < (int)sizeof value)
            rc = options_set(to, o, value, from->origin[i].from, from->origin[i].where, e);
    }
    if (rc < 0)
        options_release(to);
    return rc < 0 ? rc : 0;
}

/* ---- finding ---- */

static bool spelled(const struct option *option, const char *name, size_t n)
{
    const char *p = option->others;

    while (*p) {
        size_t len = strcspn(p, " "), dashes = strspn(p, "-");

        if ((len == n && !strncmp(p, name, n)) ||
            (*name != '-' && len - dashes == n && !strncmp(p + dashes, name, n)))
            return true;
        p += len + (p[len] == ' ');
    }
    return false;
}

/* name[0..n) as typed on a command line ("--temp", "-n") or bare ("temp"). */
static const struct option *find(const char *name, size_t n)
{
    bool dashed = n > 2 && name[0] == '-' && name[1] == '-';

    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &option_table[i];

        if (dashed && strlen(o->name) == n - 2 && !strncmp(o->name, name + 2, n - 2))
            return o;
        if (*name != '-' && strlen(o->name) == n && !strncmp(o->name, name, n))
            return o;
    }
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (spelled(&option_table[i], name, n))
            return &option_table[i];
    return NULL;
}

const struct option *options_find(const char *name)
{
    return find(name, strlen(name));
}

const struct option *options_nearest(const char *name, int place)
{
    const char *names[OPTION_COUNT];
    const struct option *map[OPTION_COUNT];
    size_t n = 0;
    int at;

    name += strspn(name, "-");
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if ((option_table[i].place & place) == place) {
            map[n] = &option_table[i];
            names[n++] = option_table[i].name;
        }
    at = nearest_word(name, names, n);
    return at < 0 ? NULL : map[at];
}

/* ---- the command line ---- */

static int unknown_flag(const char *argument, size_t n, struct error *e)
{
    char name[64];
    const struct option *near;

    snprintf(name, sizeof name, "%.*s", (int)n, argument);
    near = options_nearest(name, OPTION_LINE);
    if (near)
        return error_set(e, ERR_USAGE, "unknown option %s; did you mean --%s?", name, near->name);
    return error_set(e, ERR_USAGE, "unknown option %s; moetop --help lists them", name);
}

static int stray_argument(const char *argument, struct error *e)
{
    if (path_stem(argument, ".gguf"))
        return error_set(e, ERR_USAGE, "unexpected argument '%s'; a model is given with -m",
                         argument);
    return error_set(e, ERR_USAGE, "unexpected argument '%s'; a prompt is given with -p", argument);
}

/* --no-NAME turns a flag off. */
static const struct option *negated(const char *argument)
{
    const struct option *o;

    if (strncmp(argument, "--no-", 5))
        return NULL;
    o = find(argument + 5, strlen(argument + 5));
    return o && o->type == OPTION_FLAG && !strcmp(o->name, argument + 5) ? o : NULL;
}

/* A LIST whose argument has several words ("TYPE IN OUT") takes as many values at a time. */
static int take_values(struct options *o, const struct option *option, int argc, char *const *argv,
                       int *i, const char *where, struct error *e)
{
    int n = 1, rc = 0;

    for (const char *p = option->argument; *p; p++)
        n += *p == ' ';
    if (argc - *i - 1 < n)
        return error_set(e, ERR_USAGE, "%s needs %d values: %s %s", where, n, where,
                         option->argument);
    for (; n > 0 && rc >= 0; n--)
        rc = options_set(o, option, argv[++*i], ORIGIN_FLAG, where, e);
    return rc;
}

/* Parses argv[*i] and its values. */
static int parse_one(struct options *o, int argc, char *const *argv, int *i, struct error *e)
{
    const char *argument = argv[*i], *value = NULL;
    size_t n = strlen(argument);
    char where[80], word[32];
    const struct option *option;
    int implied;

    if (argument[0] != '-' || !argument[1])
        return o->fit ? options_set(o, &option_table[OPTION_ID_fit_models], argument, ORIGIN_FLAG,
                                    "--fit", e)
                      : stray_argument(argument, e);
    if (!strncmp(argument, "--", 2) && (value = strchr(argument, '=')))
        n = (size_t)(value++ - argument);
    snprintf(where, sizeof where, "%.*s", (int)n, argument);
    if (!(option = find(argument, n))) {
        if (!value && (option = negated(argument)))
            return options_set(o, option, "false", ORIGIN_FLAG, where, e);
        return unknown_flag(argument, n, e);
    }
    if (option->type == OPTION_FLAG)
        return options_set(o, option, value ? value : "true", ORIGIN_FLAG, where, e);
    implied = option->type == OPTION_WORD ? word_implied(option) : -1;
    if (!value && implied >= 0 && (*i + 1 >= argc || argv[*i + 1][0] == '-')) {
        option_word(option, implied, word, sizeof word);
        value = word;
    }
    if (!value && option->type == OPTION_LIST && strchr(option->argument, ' '))
        return take_values(o, option, argc, argv, i, where, e);
    if (!value) {
        if (*i + 1 >= argc)
            return error_set(e, ERR_USAGE, "%s needs a value: %s %s", where, where,
                             option->argument);
        value = argv[++*i];
    }
    return options_set(o, option, value, ORIGIN_FLAG, where, e);
}

int options_parse(struct options *o, int argc, char *const *argv, struct error *e)
{
    int rc = 0;

    for (int i = 1; i < argc && rc >= 0; i++)
        rc = parse_one(o, argc, argv, &i, e);
    return rc;
}

/* ---- the environment ---- */

void option_variable(const struct option *option, char *out, size_t size)
{
    snprintf(out, size, "MOETOP_%s", option->name);
    for (char *p = out; *p; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

int options_environment(struct options *o, char *const *environment, struct error *e)
{
    for (; *environment; environment++) {
        const char *equals = strchr(*environment, '=');
        const struct option *option;
        char variable[80], name[80];
        int rc;

        if (strncmp(*environment, "MOETOP_", 7) || !equals ||
            equals - *environment >= (long)sizeof variable)
            continue;
        snprintf(variable, sizeof variable, "%.*s", (int)(equals - *environment), *environment);
        snprintf(name, sizeof name, "%s", variable + 7);
        for (char *p = name; *p; p++)
            *p = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
        option = options_find(name);
        /* Other programs may own variables of this prefix, so an unknown one is not an error. */
        if (!option || strcmp(option->name, name) || !(option->place & OPTION_FILE))
            continue;
        if ((rc = options_set(o, option, equals + 1, ORIGIN_ENVIRONMENT, variable, e)) < 0)
            return rc;
    }
    return 0;
}

/* ---- printing ---- */

static int list_value(const struct option_list *l, char *out, size_t size)
{
    size_t at = 0;

    if (size)
        *out = 0;
    for (size_t i = 0; i < l->n; i++)
        at += (size_t)snprintf(at < size ? out + at : NULL, at < size ? size - at : 0, "%s%s",
                               i ? ", " : "", l->items[i]);
    return (int)at;
}

static int size_value(uint64_t v, char *out, size_t size)
{
    static const char *const units[] = {"", "K", "M", "G", "T"};
    int u = 0;

    while (v && v % 1024 == 0 && u < 4) {
        v /= 1024;
        u++;
    }
    return snprintf(out, size, "%llu%s", (unsigned long long)v, units[u]);
}

int option_value(const struct options *o, const struct option *option, char *out, size_t size)
{
    const void *f = field_of(o, option);
    const char *text;
    char word[32] = "";

    switch (option->type) {
    case OPTION_FLAG: return snprintf(out, size, "%s", *(const bool *)f ? "true" : "false");
    case OPTION_INT:
        if (*option->words && !*(const int *)f)
            return snprintf(out, size, "%s", option->words);
        return snprintf(out, size, "%d", *(const int *)f);
    case OPTION_REAL:
        if (*option->words && *(const double *)f == 0)
            return snprintf(out, size, "%s", option->words);
        return snprintf(out, size, "%.10g", *(const double *)f);
    case OPTION_SEED:
        if (*(const uint64_t *)f == OPTION_SEED_RANDOM)
            return snprintf(out, size, "-1");
        return snprintf(out, size, "%llu", (unsigned long long)*(const uint64_t *)f);
    case OPTION_SIZE: return size_value(*(const uint64_t *)f, out, size);
    case OPTION_WORD:
        option_word(option, *(const int *)f, word, sizeof word);
        return snprintf(out, size, "%s", word);
    case OPTION_LIST: return list_value(f, out, size);
    case OPTION_TEXT:
    case OPTION_PATH: text = *(char *const *)f; return snprintf(out, size, "%s", text ? text : "");
    }
    return 0;
}

bool option_is_set(const struct options *o, enum option_id id)
{
    return o->origin[id].from != ORIGIN_DEFAULT;
}

void option_origin_text(const struct options *o, const struct option *option, char *out,
                        size_t size)
{
    static const char *const words[] = {"default",        "recommended by the model",
                                        "model settings", "site file",
                                        "file",           "environment",
                                        "flag",           "chat"};
    size_t id = option_id_of(option);
    const char *where = o->origin[id].where;

    snprintf(out, size, "%s%s%s", words[o->origin[id].from], where ? " " : "", where ? where : "");
}
