/* app/options: one table, every source, precedence, and what a wrong flag is told. */
#include "app/headless/documents.h"
#include "app/common/did_you_mean.h"
#include "app/options/options.h"
#include "engine/base/mem.h"
#include "tests/support.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static struct options o;
static struct error e;

static void setup(void)
{
    e = (struct error){0};
    ck_assert_int_eq(options_init(&o, &e), 0);
}

static void teardown(void)
{
    options_release(&o);
}

/* Parses "moetop a b c" split at single spaces; "_" stands for a space inside an argument. */
static int parse(const char *line)
{
    static char copy[512];
    char *argv[64] = {"moetop"};
    int argc = 1;

    snprintf(copy, sizeof copy, "%s", line);
    for (char *p = strtok(copy, " "); p; p = strtok(NULL, " "))
        argv[argc++] = p;
    return options_parse(&o, argc, argv, &e);
}

/* Every default stands in the table as a user would write it, and reads back the same. */
START_TEST(defaults_round_trip)
{
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct option *p = &option_table[i];
        char value[256];

        option_value(&o, p, value, sizeof value);
        ck_assert_msg(!strcmp(value, *p->fallback             ? p->fallback
                                     : p->type == OPTION_FLAG ? "false"
                                                              : value),
                      "%s: default %s reads as %s", p->name, p->fallback, value);
        if (p->type == OPTION_INT || p->type == OPTION_REAL)
            ck_assert_msg(p->min < p->max, "%s has an empty range", p->name);
        if (p->type != OPTION_TEXT && p->type != OPTION_PATH && p->type != OPTION_LIST)
            ck_assert_msg(*p->fallback, "%s needs a default", p->name);
        ck_assert_msg((*p->argument == 0) == (p->type == OPTION_FLAG), "%s: argument name",
                      p->name);
        ck_assert_msg(p->help[strlen(p->help) - 1] != '.', "%s: the help ends with a full stop",
                      p->name);
    }
}
END_TEST

/* No spelling belongs to two options, and each finds its own. */
START_TEST(spellings_are_unique)
{
    char seen[OPTION_COUNT * 5][40];
    int n = 0;

    for (int i = 0; i < OPTION_COUNT; i++) {
        char all[200], *next;

        snprintf(all, sizeof all, "--%s %s", option_table[i].name, option_table[i].others);
        for (char *p = strtok_r(all, " ", &next); p; p = strtok_r(NULL, " ", &next)) {
            for (int k = 0; k < n; k++)
                ck_assert_msg(strcmp(seen[k], p), "%s twice", p);
            snprintf(seen[n++], sizeof seen[0], "%s", p);
            ck_assert_ptr_eq(options_find(p), &option_table[i]);
        }
    }
}
END_TEST

START_TEST(llama_spellings)
{
    ck_assert_int_eq(parse("-m model.gguf -p hi -n 12 -c 512 -b 64 -ub 32 -t 3 -s 42 --temp 0.5 "
                           "--top-k 7 --top-p 0.9 --min-p 0.1 "
                           "--repeat-penalty 1.1 --repeat-last-n 32 -sys be_kind --color never "
                           "-ctk f32 -ctv f16 --ignore-eos -e "
                           "-r END -r STOP"),
                     0);
    ck_assert_str_eq(o.model, "model.gguf");
    ck_assert_str_eq(o.prompt, "hi");
    ck_assert_int_eq(o.n_predict, 12);
    ck_assert_int_eq(o.ctx_size, 512);
    ck_assert_int_eq(o.batch_size, 64);
    ck_assert_int_eq(o.ubatch_size, 32);
    ck_assert_int_eq(o.threads, 3);
    ck_assert_uint_eq(o.seed, 42);
    ck_assert_double_eq(o.temp, 0.5);
    ck_assert_int_eq(o.top_k, 7);
    ck_assert_double_eq(o.top_p, 0.9);
    ck_assert_double_eq(o.min_p, 0.1);
    ck_assert_double_eq(o.repeat_penalty, 1.1);
    ck_assert_int_eq(o.repeat_last_n, 32);
    ck_assert_str_eq(o.system_prompt, "be_kind");
    ck_assert_int_eq(o.cache_type_k, 0);
    ck_assert_int_eq(o.cache_type_v, 1);
    ck_assert(o.ignore_eos && o.escape && !o.raw);
    ck_assert_uint_eq(o.stop.n, 2);
    ck_assert_str_eq(o.stop.items[1], "STOP");
}
END_TEST

START_TEST(equals_negatives_and_implied_words)
{
    ck_assert_int_eq(parse("--n-predict=-1 --predict 5 -n -1 --temp=0 --color --raw --no-raw "
                           "--pace off --threads auto"),
                     0);
    ck_assert_int_eq(o.n_predict, -1);
    ck_assert_double_eq(o.temp, 0);
    ck_assert_int_eq(o.color, 1); /* always */
    ck_assert(!o.raw);
    ck_assert_double_eq(o.pace, 0);
    ck_assert_int_eq(parse("--color never --escape=on --prompt= --seed -1"), 0);
    ck_assert_int_eq(o.color, 2);
    ck_assert(o.escape);
    ck_assert_str_eq(o.prompt, "");
    ck_assert_uint_eq(o.seed, OPTION_SEED_RANDOM);
}
END_TEST

static const struct {
    const char *line, *says;
} wrong[] = {
    {"--tmp 1", "did you mean --temp?"},
    {"--top_k 1", "did you mean --top-k?"},
    {"--promt x", "did you mean --prompt?"},
    {"--xyzzyplugh", "moetop --help"},
    {"-zz", "unknown option -zz"},
    {"--temp", "--temp needs a value"},
    {"--temp abc", "'abc' is no number"},
    {"--temp nan", "'nan' is no number"},
    {"--temp inf", "'inf' is no number"},
    {"--temp -1", "out of range"},
    {"--top-p 1.5", "between 0 and 1"},
    {"--top-k 1.5", "no whole number"},
    {"--top-k 99999999999999999999", "out of range"},
    {"-n 12abc", "no whole number"},
    {"--seed -2", "no seed"},
    {"--seed 18446744073709551615", "no seed"},
    {"-ctk q9", "none of f32"},
    {"--raw=perhaps", "neither true nor false"},
    {"hello", "a prompt is given with -p"},
    {"x.gguf", "a model is given with -m"},
    {"--no-temp", "unknown option --no-temp"},
    {"--", "unknown option"},
    {"-", "unexpected argument"},
    {"--=3", "unknown option"},
};

START_TEST(wrong_flags_are_explained)
{
    ck_assert_int_eq(parse(wrong[_i].line), ERR_USAGE);
    ck_assert_msg(strstr(e.text, wrong[_i].says), "%s: %s", wrong[_i].line, e.text);
}
END_TEST

/* Whatever the order in which the sources are read, the strongest one wins and says so. */
START_TEST(precedence_in_every_order)
{
    static const struct {
        enum option_origin from;
        const char *value, *where;
    } sources[] = {
        {ORIGIN_MODEL, "1", "model.yaml:1"},   {ORIGIN_SITE, "2", "site.yaml:1"},
        {ORIGIN_CONFIG, "3", "config.yaml:1"}, {ORIGIN_ENVIRONMENT, "4", "MOETOP_TOP_K"},
        {ORIGIN_FLAG, "5", "--top-k"},         {ORIGIN_CHAT, "6", NULL},
    };
    enum { N = sizeof sources / sizeof *sources };
    const struct option *top_k = options_find("top-k");

    for (int subset = 1; subset < 1 << N; subset++)
        for (int rotate = 0; rotate < N; rotate++) {
            int strongest = 0;
            char text[128];

            options_release(&o);
            ck_assert_int_eq(options_init(&o, &e), 0);
            for (int i = 0; i < N; i++) {
                int s = (i + rotate) % N;

                if (!(subset >> s & 1))
                    continue;
                ck_assert_int_eq(options_set(&o, top_k, sources[s].value, sources[s].from,
                                             sources[s].where, &e),
                                 0);
                strongest = s > strongest ? s : strongest;
            }
            ck_assert_int_eq(o.top_k, strongest + 1);
            option_origin_text(&o, top_k, text, sizeof text);
            ck_assert_msg(!sources[strongest].where || strstr(text, sources[strongest].where), "%s",
                          text);
        }
}
END_TEST

START_TEST(lists_of_a_stronger_source_replace)
{
    const struct option *stop = options_find("stop");

    options_set(&o, stop, "a", ORIGIN_CONFIG, NULL, &e);
    options_set(&o, stop, "b", ORIGIN_CONFIG, NULL, &e);
    ck_assert_uint_eq(o.stop.n, 2);
    options_set(&o, stop, "c", ORIGIN_FLAG, NULL, &e);
    options_set(&o, stop, "d", ORIGIN_CONFIG, NULL, &e);
    ck_assert_uint_eq(o.stop.n, 1);
    ck_assert_str_eq(o.stop.items[0], "c");
}
END_TEST

START_TEST(a_refused_value_changes_nothing)
{
    ck_assert_int_eq(parse("--temp 0.25 --top-k 9 -ctk f32 --seed 3"), 0);
    ck_assert_int_eq(parse("--temp 0.5x"), ERR_USAGE);
    ck_assert_int_eq(parse("--top-k 1e3"), ERR_USAGE);
    ck_assert_int_eq(parse("-ctk q1"), ERR_USAGE);
    ck_assert_int_eq(parse("--seed x"), ERR_USAGE);
    ck_assert_double_eq(o.temp, 0.25);
    ck_assert_int_eq(o.top_k, 9);
    ck_assert_int_eq(o.cache_type_k, 0);
    ck_assert_uint_eq(o.seed, 3);
}
END_TEST

START_TEST(variables)
{
    char *given[] = {"HOME=/x",       "MOETOP_TOP_K=3", "MOETOP_TOP_K_=4",       "MOETOP_ROOT=/r",
                     "MOETOP_HELP=1", "MOETOP_RAW=1",   "MOETOP_MODEL=m=n.gguf", NULL};
    char *bad[] = {"MOETOP_TEMP=warm", NULL};

    ck_assert_int_eq(options_environment(&o, given, &e), 0);
    ck_assert_int_eq(o.top_k, 3);
    ck_assert(!o.help && !o.raw); /* what to do in one run is no setting */
    ck_assert_str_eq(o.model, "m=n.gguf");
    ck_assert_int_eq(options_environment(&o, bad, &e), ERR_USAGE);
    ck_assert(strstr(e.text, "MOETOP_TEMP"));
}
END_TEST

static const struct {
    const char *text;
    uint64_t bytes;
} sizes[] = {
    {"0", 0},
    {"4096", 4096},
    {"4K", 4096},
    {"600M", 600ull << 20},
    {"1.5G", 3ull << 29},
    {"2GiB", 2ull << 30},
    {"2gb", 2ull << 30},
    {"1T", 1ull << 40},
    {"12B", 12},
};
static const char *const no_sizes[] = {"", "M", "-1", "1X", "1MM", " 1", "nan", "1e30", "inf"};

START_TEST(sizes_binary)
{
    uint64_t v;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ck_assert_msg(option_parse_size(sizes[i].text, &v, &e) == 0, "%s", sizes[i].text);
        ck_assert_msg(v == sizes[i].bytes, "%s", sizes[i].text);
    }
    for (size_t i = 0; i < sizeof no_sizes / sizeof *no_sizes; i++)
        ck_assert_msg(option_parse_size(no_sizes[i], &v, &e) == ERR_USAGE, "'%s'", no_sizes[i]);
}
END_TEST

START_TEST(nearest)
{
    static const char *const words[] = {"temp", "top-k", "top-p", "prompt", "screen-reader"};

    ck_assert_int_eq(nearest_word("tepm", words, 5), 0);
    ck_assert_int_eq(nearest_word("screen", words, 5), 4);
    ck_assert_int_eq(nearest_word("promptt", words, 5), 3);
    ck_assert_int_eq(nearest_word("zebra", words, 5), -1);
    ck_assert_int_eq(nearest_word("", words, 5), -1);
    ck_assert_int_eq(
        nearest_word("an-extremely-long-word-that-is-longer-than-the-table-of-distances-can-hold",
                     words, 5),
        -1);
}
END_TEST

/* Running out of memory anywhere is an error, never a crash or a leak. */
START_TEST(every_allocation_may_fail)
{
    char *argv[] = {"moetop", "-m", "x", "-r", "a", "-r", "b", "-sys", "s", "--temp", "1"};
    int rc;

    options_release(&o);
    for (long n = 0;; n++) {
        mem_fail_after(n);
        rc = options_init(&o, &e);
        if (rc == 0)
            rc = options_parse(&o, (int)(sizeof argv / sizeof *argv), argv, &e);
        mem_fail_after(-1);
        options_release(&o);
        if (rc == 0)
            break;
        ck_assert_int_eq(rc, ERR_MEMORY);
        ck_assert(n < 100);
    }
    ck_assert_int_eq(options_init(&o, &e), 0);
}
END_TEST

START_TEST(help_names_every_flag_and_fits)
{
    char *text = NULL, flag[64], *save;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    documents_help(f, 80);
    fclose(f);
    for (int i = 0; i < OPTION_COUNT; i++) {
        snprintf(flag, sizeof flag, "--%s", option_table[i].name);
        ck_assert_msg(strstr(text, flag), "%s", flag);
    }
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        ck_assert_msg(strlen(line) <= 126, "%s", line);
    free(text);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("options");
    TCase *t = tcase_create("options");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, defaults_round_trip);
    tcase_add_test(t, spellings_are_unique);
    tcase_add_test(t, llama_spellings);
    tcase_add_test(t, equals_negatives_and_implied_words);
    tcase_add_loop_test(t, wrong_flags_are_explained, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(t, precedence_in_every_order);
    tcase_add_test(t, lists_of_a_stronger_source_replace);
    tcase_add_test(t, a_refused_value_changes_nothing);
    tcase_add_test(t, variables);
    tcase_add_test(t, sizes_binary);
    tcase_add_test(t, nearest);
    tcase_add_test(t, every_allocation_may_fail);
    tcase_add_test(t, help_names_every_flag_and_fits);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
