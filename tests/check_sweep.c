/* --spec-sweep: what it may be asked for, and a run on the bundled model whose samples are all
 * there, say the same text and add up. */
#include "app/speculate/sweep.h"
#include "app/common/signals.h"
#include "engine/run/engine.h"
#include "tests/support.h"

#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct error e;

static int parse(struct sweep *s, const char *words)
{
    struct options o;
    char text[300];
    char *argv[] = {"moetop", "--spec-sweep", text};
    int rc;

    snprintf(text, sizeof text, "%s", words);
    *s = (struct sweep){0};
    ck_assert_int_eq(options_init(&o, &e), 0);
    ck_assert_msg(options_parse(&o, 3, argv, &e) >= 0, "%s", e.text);
    rc = sweep_parse(s, &o, &e);
    options_release(&o);
    return rc;
}

START_TEST(what_is_asked)
{
    struct sweep s;

    ck_assert_msg(parse(&s, "K=1..3,8 drafts=lookup,ngram accept=prefix,top-k:2") == 0, "%s",
                  e.text);
    ck_assert_int_eq(s.n_arms, 1 + 2 * 2 * 4);
    ck_assert_int_eq(s.most_k, 8);
    ck_assert(!s.exact);
    ck_assert_str_eq(s.arms[0].drafter, "none");
    ck_assert_str_eq(s.arms[16].drafter, "ngram");
    ck_assert_str_eq(s.arms[16].policy, "top-k:2");
    ck_assert_int_eq(s.arms[16].k, 8);
    ck_assert(!s.arms[16].adaptive);
    ck_assert_int_eq(parse(&s, "K=2..4,auto drafts=lookup"), 0);
    ck_assert_int_eq(s.n_arms, 1 + 4);
    ck_assert(s.arms[4].adaptive && !s.arms[3].adaptive);
    ck_assert_int_eq(s.arms[4].k, 4);
    ck_assert_int_eq(parse(&s, "K=auto drafts=lookup"), 0); /* as many as --spec-draft-n-max */
    ck_assert_int_eq(s.arms[1].k, 8);
    ck_assert_int_eq(parse(&s, "K=2"), 0); /* who needs no model */
    ck_assert_int_eq(s.n_arms, 1 + 2);
    ck_assert(s.exact);
}
END_TEST

START_TEST(what_is_not)
{
    static const struct {
        const char *words, *says;
    } all[] = {{"", "K=1..8"},
               {"K=0", "from 1 to 16"},
               {"K=17", "from 1 to 16"},
               {"K=3..2", "from 1 to 16"},
               {"K=1..x", "1..x"},
               {"K=autos", "autos"},
               {"K=1 drafts=nobody", "nobody"},
               {"K=1 accept=never", "never"},
               {"K=1 speed=9", "speed=9"},
               {"drafts=lookup", "K=1..8"}};
    struct sweep s;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ck_assert_int_eq(parse(&s, all[i].words), ERR_USAGE);
        ck_assert_msg(strstr(e.text, all[i].says) != NULL, "%s: %s", all[i].words, e.text);
    }
}
END_TEST

static int number(const json_t *o, const char *key)
{
    return (int)json_integer_value(json_object_get(o, key));
}

static double real(const json_t *o, const char *key)
{
    return json_real_value(json_object_get(o, key));
}

static int sum(const json_t *list)
{
    int all = 0;

    for (size_t i = 0; i < json_array_size(list); i++)
        all += (int)json_integer_value(json_array_get(list, i));
    return all;
}

static bool file_has(const char *path, const char *words)
{
    static char text[1 << 18];
    FILE *f = fopen(path, "r");
    size_t n;

    ck_assert_ptr_nonnull(f);
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    return strstr(text, words) != NULL;
}

/* --spec-sweep on the bundled model with these words behind it, as it should end; the samples that
 * it wrote. */
static json_t *sweep_run(char *const *words, size_t n, int ends)
{
    char output[300],
        *argv[40] = {"moetop", "-m", (char *)support_demo(), "--bench-output", output};
    struct options o;

    snprintf(output, sizeof output, "%s/sweep.json", support_tmpdir());
    memcpy(argv + 5, words, n * sizeof *words);
    ck_assert_int_eq(options_init(&o, &e), 0);
    ck_assert_msg(options_parse(&o, 5 + (int)n, argv, &e) >= 0, "%s", e.text);
    ck_assert_msg(sweep_mode_run(&o, &e) == ends, "%s", e.text);
    options_release(&o);
    return json_load_file(output, 0, NULL);
}

#define WORDS(list) list, sizeof(list) / sizeof *(list)
#define SHORT "-t", "2", "-c", "512", "--temp", "0"

START_TEST(every_sample_is_kept)
{
    static char asked[] = "Repeat after me: The duck swam on the pond. The duck saw a frog. The "
                          "frog saw the duck. The duck swam on the pond.";
    char picture[300];
    char *words[] = {SHORT,
                     "-n",
                     "60",
                     "-p",
                     asked,
                     "--spec-sweep",
                     "K=1,4,auto drafts=lookup",
                     "--bench-repetitions",
                     "2",
                     "--plot",
                     picture};
    json_t *all, *samples, *x;
    size_t i;
    int accepted = 0;

    snprintf(picture, sizeof picture, "%s/sweep.svg", support_tmpdir());
    all = sweep_run(WORDS(words), 0);
    samples = json_object_get(all, "samples");
    ck_assert_uint_eq(json_array_size(samples), 4 * 2);
    ck_assert_uint_eq(json_array_size(json_object_get(all, "arms")), 4);
    json_array_foreach(samples, i, x)
    {
        int k = number(x, "k"), drafted = number(x, "drafted");
        const json_t *tried = json_object_get(x, "tried"), *right = json_object_get(x, "right");

        ck_assert(json_is_true(json_object_get(x, "same_text")));
        ck_assert_int_eq(number(x, "tokens"), 60);
        ck_assert(json_real_value(json_object_get(x, "tokens_per_second")) > 0);
        ck_assert_int_eq(sum(tried), drafted);
        ck_assert_int_eq(sum(right), number(x, "accepted"));
        ck_assert(k && !json_is_true(json_object_get(x, "adaptive")) ? drafted > 0
                                                                     : k || drafted == 0);
        for (size_t at = (size_t)k; at < json_array_size(tried); at++)
            ck_assert_int_eq((int)json_integer_value(json_array_get(tried, at)), 0);
        if (!k)
            ck_assert_double_eq(real(x, "bytes_against_none"), 1.0);
        else if (k == 4 && !json_is_true(json_object_get(x, "adaptive")))
            /* eight of nine drafts were wrong, and had experts of their own */
            ck_assert(real(x, "bytes_against_none") > 1.005 &&
                      real(x, "bytes_against_none") < 1.05);
        accepted += number(x, "accepted");
    }
    ck_assert_int_gt(accepted, 0);
    ck_assert(json_is_true(json_object_get(json_array_get(samples, 3), "adaptive")));
    json_decref(all);
    ck_assert(file_has(picture, "lookup, prefix, K auto"));
    ck_assert(file_has(picture, "lookup, prefix: position 4"));
    ck_assert(file_has(picture, "Time of a token"));
}
END_TEST

/* What a draft model reads is counted too: one as large as the model itself gains nothing. */
START_TEST(the_draft_model_reads_too)
{
    char *words[] = {SHORT,
                     "-n",
                     "40",
                     "-p",
                     "Tell me a story.",
                     "-md",
                     (char *)support_demo(),
                     "--spec-sweep",
                     "K=1 drafts=model",
                     "--bench-repetitions",
                     "1"};
    json_t *all = sweep_run(WORDS(words), 0), *samples = json_object_get(all, "samples"),
           *x = json_array_get(samples, 1);

    ck_assert_int_eq(number(x, "drafted"), number(x, "accepted"));
    ck_assert_msg(real(x, "bytes_against_none") > 1.2 && real(x, "bytes_against_none") < 1.4, "%f",
                  real(x, "bytes_against_none"));
    json_decref(all);
}
END_TEST

/* A line may be a conversation, with how long its answer is. */
START_TEST(prompts_are_conversations_too)
{
    const char *prompts = support_put(
        support_tmpdir(), "prompts.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Tell me about a fox.\"}, "
        "{\"role\": \"assistant\", \"content\": \"A fox is a clever animal.\"}, "
        "{\"role\": \"user\", \"content\": \"Tell me about a hen.\"}], \"max_tokens\": 7}\n"
        "Tell me a story about a duck.\n");
    char *words[] = {SHORT,
                     "-n",
                     "20",
                     "--spec-sweep",
                     "K=4 drafts=lookup",
                     "--bench-repetitions",
                     "1",
                     "--bench-prompts",
                     (char *)prompts};
    json_t *all = sweep_run(WORDS(words), 0), *samples;

    samples = json_object_get(all, "samples");
    ck_assert_uint_eq(json_array_size(samples), 2 * 2);
    ck_assert_int_eq(number(json_array_get(samples, 0), "tokens"), 7);
    ck_assert_int_eq(number(json_array_get(samples, 2), "tokens"), 20);
    json_decref(all);
}
END_TEST

static void *interrupt(void *seconds)
{
    sleep(*(const unsigned *)seconds);
    kill(getpid(), SIGINT);
    return NULL;
}

/* What was measured before is written, arms that had no turn are not. */
START_TEST(interrupted_samples_are_kept)
{
    static const unsigned seconds = 4;
    char *words[] = {"-t",
                     "1",
                     "-c",
                     "256",
                     "-n",
                     "3",
                     "-p",
                     "Tell me a story.",
                     "--spec-sweep",
                     "K=2 drafts=lookup",
                     "--bench-repetitions",
                     "10000"};
    pthread_t thread;
    json_t *all;

    signals_catch();
    pthread_create(&thread, NULL, interrupt, (void *)(uintptr_t)&seconds);
    all = sweep_run(WORDS(words), ERR_CANCELLED);
    pthread_join(thread, NULL);
    signals_release();
    ck_assert_uint_gt(json_array_size(json_object_get(all, "samples")), 1);
    json_decref(all);
}
END_TEST

/* The lossy ones say so; a drafter that was not opened cannot be heard. */
START_TEST(drafting_may_change_between_turns)
{
    struct engine_config c = {.model_path = support_demo(),
                              .context = 128,
                              .n_threads = 1,
                              .convert = -1,
                              .drafting = {.type = "lookup", .n_max = 4}};
    struct drafting d = {.type = "ngram"};
    struct engine *g;

    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    ck_assert_int_eq(engine_drafting_set(g, &d, &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "ngram"));
    strcpy(d.type, "none");
    ck_assert_int_eq(engine_drafting_set(g, &d, &e), 0);
    engine_session_clear(g);
    ck_assert(!engine_telemetry(g)->speculation.wanted);
    strcpy(d.type, "lookup");
    d.n_max = 5;
    ck_assert_int_eq(engine_drafting_set(g, &d, &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "at most 4"));
    engine_close(g);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sweep");
    TCase *t = tcase_create("sweep");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, what_is_asked);
    tcase_add_test(t, what_is_not);
    tcase_add_test(t, every_sample_is_kept);
    tcase_add_test(t, the_draft_model_reads_too);
    tcase_add_test(t, prompts_are_conversations_too);
    tcase_add_test(t, interrupted_samples_are_kept);
    tcase_add_test(t, drafting_may_change_between_turns);
    suite_add_tcase(s, t);
    return support_run(s);
}
