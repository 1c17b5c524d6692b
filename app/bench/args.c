/* See args.h. */
#include "app/bench/args.h"

#include "engine/base/mem.h"
#include "engine/base/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS_MAX 1024

static const struct {
    const char *theirs, *ours;
} spellings[] = {
    {"-p", "--bench-prompt"},
    {"--n-prompt", "--bench-prompt"},
    {"-n", "--bench-gen"},
    {"--n-gen", "--bench-gen"},
    {"-pg", "--bench-pg"},
    {"-d", "--bench-depth"},
    {"--n-depth", "--bench-depth"},
    {"-r", "--bench-repetitions"},
    {"--repetitions", "--bench-repetitions"},
    {"-t", "--bench-threads"},
    {"--threads", "--bench-threads"},
    {"-ub", "--bench-ubatch"},
    {"--ubatch-size", "--bench-ubatch"},
    {"-ctk", "--bench-ctk"},
    {"--cache-type-k", "--bench-ctk"},
    {"-ctv", "--bench-ctv"},
    {"--cache-type-v", "--bench-ctv"},
    {"-o", "--bench-format"},
    {"--output", "--bench-format"},
    {"--no-warmup", "--no-bench-warmup"},
};

const char *bench_spelling(int i, const char **ours)
{
    if ((size_t)i >= sizeof spellings / sizeof *spellings)
        return NULL;
    *ours = spellings[i].ours;
    return spellings[i].theirs;
}

/* The two texts as one argument, never freed, since argv points to it. NULL: out of memory. */
static char *joined(const char *flag, const char *value)
{
    size_t n = strlen(flag) + strlen(value) + 1;
    char *s = mem_alloc(n, 1);

    if (s)
        snprintf(s, n, "%s%s", flag, value);
    return s;
}

void bench_respell(int argc, char **argv)
{
    bool asked = false, comparing = false;

    for (int i = 1; i < argc; i++) {
        asked |= strcmp(argv[i], "--bench") == 0;
        comparing |= strcmp(argv[i], "--compare") == 0 || strncmp(argv[i], "--compare=", 10) == 0 ||
                     strcmp(argv[i], "--spec-sweep") == 0 ||
                     strncmp(argv[i], "--spec-sweep=", 13) == 0;
    }
    for (int i = 1; i < argc; i++) {
        /* --bench-compare takes two files: three arguments become two flags of one value each and
         * --bench */
        if (strcmp(argv[i], "--bench-compare") == 0 && i + 2 < argc && argv[i + 2][0] != '-') {
            char *first = joined("--bench-compare=", argv[i + 1]),
                 *second = joined("--bench-compare=", argv[i + 2]);

            if (!first || !second)
                return;
            argv[i] = (char *)"--bench";
            argv[i + 1] = first;
            argv[i + 2] = second;
            i += 2;
            continue;
        }
        /* a comparison has the prompt and length flags of a chat, but the repetition and output
         * flags of a benchmark */
        if (!asked && comparing && (strcmp(argv[i], "-r") == 0 || strcmp(argv[i], "-o") == 0))
            argv[i] = (char *)(argv[i][1] == 'r' ? "--bench-repetitions" : "--bench-format");
        if (!asked)
            continue;
        for (size_t k = 0; k < sizeof spellings / sizeof *spellings; k++)
            if (strcmp(argv[i], spellings[k].theirs) == 0) {
                argv[i] = (char *)spellings[k].ours;
                break;
            }
    }
}

struct numbers {
    int *values;
    size_t n;
};

static int add(struct numbers *out, long v)
{
    if (out->n == NUMBERS_MAX || v < 0 || v > 1 << 30)
        return -1;
    if (!MEM_FIT(out->values, out->n + 1))
        return -2;
    out->values[out->n++] = (int)v;
    return 0;
}

/* 512 | 1-4 | 1-8+2 | 1-16*2 */
static int add_range(struct numbers *out, const char **p)
{
    int from, to, step = 1;
    char how = '+';
    int rc = 0;

    if (size_digits(p, 1 << 30, &from) < 0)
        return -1;
    to = from;
    if (**p == '-') {
        ++*p;
        if (size_digits(p, 1 << 30, &to) < 0 || to < from)
            return -1;
        if (**p == '+' || **p == '*') {
            how = *(*p)++;
            if (size_digits(p, 1 << 30, &step) < 0 || step < (how == '*' ? 2 : 1) ||
                (how == '*' && from == 0))
                return -1;
        }
    }
    for (long v = from; v <= to && rc == 0; v = how == '*' ? v * step : v + step)
        rc = add(out, v);
    return rc;
}

static int read_list(const struct option_list *list, const char *flag, bool pairs, int **values,
                     size_t *n, struct error *e)
{
    struct numbers out = {0};
    int rc = 0;

    *values = NULL;
    *n = 0;
    for (size_t i = 0; i < list->n && rc == 0; i++) {
        const char *p = list->items[i];
        size_t before = out.n;

        while (rc == 0) {
            rc = add_range(&out, &p);
            if (rc == 0 && (*p == ',' || (pairs && *p == ';')))
                p++;
            else
                break;
        }
        if (rc == -2)
            rc = error_set(e, ERR_MEMORY, "out of memory for %s", flag);
        else if (rc < 0 || *p ||
                 (pairs &&
                  ((out.n - before) % 2 || !out.values[before] || !out.values[before + 1])))
            rc = error_set(e, ERR_USAGE,
                           pairs ? "%s: '%s': write PROMPT,GENERATED, for example 512,128"
                                 : "%s: '%s': write numbers with commas, or first-last, "
                                   "first-last+step, first-last*factor",
                           flag, list->items[i]);
    }
    if (rc < 0) {
        mem_free(out.values);
        return rc;
    }
    *values = out.values;
    *n = pairs ? out.n / 2 : out.n;
    return 0;
}

int bench_numbers(const struct option_list *list, const char *flag, int **out, size_t *n,
                  struct error *e)
{
    return read_list(list, flag, false, out, n, e);
}

int bench_pairs(const struct option_list *list, const char *flag, int **out, size_t *n,
                struct error *e)
{
    return read_list(list, flag, true, out, n, e);
}

int bench_arms(const char *text, char ****arms, size_t *n, struct error *e)
{
    size_t len = strlen(text), most_words = len / 2 + 2, most_arms = 1;
    char ***list, **words, *out;
    char *block;
    char quote = 0;
    bool in_word = false, empty = true;

    *arms = NULL;
    *n = 0;
    for (const char *p = text; *p; p++)
        most_arms += *p == ';';
    block = mem_alloc(1, most_arms * sizeof *list + (most_words + most_arms) * sizeof *words + len +
                             most_words + 1);
    if (!block)
        return error_set(e, ERR_MEMORY, "out of memory for --arms");
    list = (char ***)(void *)block;
    words = (char **)(void *)(block + most_arms * sizeof *list);
    out = block + most_arms * sizeof *list + (most_words + most_arms) * sizeof *words;
    list[0] = words;
    for (const char *p = text;; p++) {
        bool ends = !*p || (!quote && (*p == ';' || *p == ' ' || *p == '\t'));

        if (quote && !*p) {
            mem_free(block);
            return error_set(e, ERR_USAGE, "--arms: a quote is not closed in '%s'", text);
        }
        if (!ends) {
            if (!in_word)
                *words = out;
            in_word = true;
            if (quote && *p == quote)
                quote = 0;
            else if (!quote && (*p == '"' || *p == '\''))
                quote = *p;
            else
                *out++ = *p == '\\' && p[1] ? *++p : *p;
            continue;
        }
        if (in_word) {
            *out++ = 0;
            words++;
            empty = false;
        }
        in_word = false;
        if (!*p || *p == ';') {
            *words++ = NULL;
            if (!(empty && !*p && *n > 0)) /* "a;b;" has two arms */
                ++*n;
            empty = true;
            if (!*p)
                break;
            list[*n] = words;
        }
    }
    *arms = list;
    return 0;
}
