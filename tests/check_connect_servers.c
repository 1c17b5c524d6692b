/* --connect and the servers of others: the figures, models and answers that they sent, recorded in
 * tests/servers. */
#include "app/connect/figures.h"
#include "tests/replay.h"
#include "tests/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Same, or both not told. */
static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : fabs(a - b) < 1e-9;
}

#define N NAN

static const struct {
    const char *folder;
    enum server_kind kind;
    int context;
    const char *model, *text, *thought;
    int prompt, cached_tokens, generated;
    double running, waiting, kv, cached, accepted, length; /* of the first reading */
    double decode, prompts;                                /* of the second, two seconds later */
} servers[] = {
    {"vllm", SERVER_VLLM, 40960, "Qwen/Qwen3-30B-A3B-Instruct-2507", "The fox slept.", "", 18, 16,
     5, 17, 3, 0.375, 0.625, 0.5, 2.5, 1750, 1500},
    {"sglang", SERVER_SGLANG, 131072, "openai/gpt-oss-120b", "Red and quick.", "A fox, in short.",
     72, 64, 12, 21, 2, 0.62, 0.65, 0.58, 2.75, 2004.25, 1200},
    {"llama-server", SERVER_LLAMA, 0, "phi-tiny-shape",
     " w002798 w000334 w002871 w002782 w002808 w002871 w000334 w001853", "", 79, 78, 8, 2, 1,
     185 / 4096.0, 390 / 553.0, N, N, 13, 0},
    {"litellm", SERVER_OTHER, 0, "storyteller",
     "s w000334 w001490 w000334 w003594 w002926 w003600 w001490", "", 79, 78, 8, 3, N, N,
     252 / 395.0, N, N, 0, 0},
    {"transformers", SERVER_OTHER, 0, "models/tiny-storyteller", "Once upon a time, there was a",
     "", 11, 0, 8, N, N, N, N, N, N, N, N},
};

#define SERVERS ((int)(sizeof servers / sizeof *servers))

static void read_page(struct figures *f, const char *metrics, const char *slots)
{
    size_t n;
    char *page = replay_recorded(metrics, &n);

    figures_init(f);
    figures_read_metrics(f, page, n);
    free(page);
    page = replay_recorded(slots, &n);
    if (n)
        ck_assert(figures_read_slots(f, page, n));
    free(page);
}

START_TEST(recorded_figures_are_read)
{
    struct figures first, second;

    replay.folder = servers[_i].folder;
    read_page(&first, "metrics.txt", "slots.json");
    read_page(&second, "metrics-later.txt", "slots-later.json");
    figures_rate(&second, &first, 2);
    ck_assert_msg(same(first.running, servers[_i].running) &&
                      same(first.waiting, servers[_i].waiting),
                  "%g running, %g waiting", first.running, first.waiting);
    ck_assert_msg(same(first.kv, servers[_i].kv), "%g", first.kv);
    ck_assert_msg(same(first.cached, servers[_i].cached), "%g", first.cached);
    ck_assert_msg(same(first.accepted, servers[_i].accepted), "%g", first.accepted);
    ck_assert_msg(same(first.draft_length, servers[_i].length), "%g", first.draft_length);
    ck_assert_msg(same(second.decode_tok_s, servers[_i].decode), "%g", second.decode_tok_s);
    ck_assert_msg(same(second.prompt_tok_s, servers[_i].prompts), "%g", second.prompt_tok_s);
    /* a server that was started again counts from zero */
    figures_rate(&first, &second, 2);
    ck_assert(servers[_i].prompts > 0 ? isnan(first.prompt_tok_s) : first.prompt_tok_s != -1);
}
END_TEST

START_TEST(recorded_answers_are_read)
{
    const struct server *s;
    struct figures f;

    replay.folder = servers[_i].folder;
    replay_connect(_i == SERVERS - 1 ? servers[_i].model : NULL);
    replay_await(EVENT_READY, NULL);
    s = remote_server(replay_chat);
    ck_assert_int_eq(s->kind, servers[_i].kind);
    ck_assert_int_eq(s->context, servers[_i].context);
    ck_assert_str_eq(s->model, servers[_i].model);
    replay_ask();
    replay_await(EVENT_TURN_DONE, NULL);
    ck_assert_str_eq(strbuf_text(&replay_text), servers[_i].text);
    ck_assert_str_eq(strbuf_text(&replay_thought), servers[_i].thought);
    ck_assert_int_eq(replay_done.prompt_tokens, servers[_i].prompt);
    ck_assert_int_eq(replay_done.cached_tokens, servers[_i].cached_tokens);
    ck_assert_int_eq(replay_done.completion_tokens, servers[_i].generated);
    ck_assert_ptr_nonnull(strstr(replay.said, servers[_i].model)); /* in place of "x" */
    do {
        usleep(2000);
        remote_figures(replay_chat, &f);
    } while (strstr(f.why, "not asked yet"));
    ck_assert(same(f.running, servers[_i].running) && same(f.kv, servers[_i].kv));
    if (isnan(servers[_i].running))
        ck_assert_str_eq(f.why, "N/A (it has no /metrics)");
    replay_disconnect();
}
END_TEST

START_TEST(counters_become_rates)
{
    struct figures f;

    replay_connect(NULL);
    replay_await(EVENT_READY, NULL);
    do {
        usleep(20000);
        remote_figures(replay_chat, &f);
    } while (isnan(f.decode_tok_s));
    /* 3500 and 3000 tokens in two seconds, and what the machine takes longer */
    ck_assert_msg(f.decode_tok_s > 800 && f.decode_tok_s < 1800, "%g", f.decode_tok_s);
    ck_assert_msg(fabs(f.prompt_tok_s / f.decode_tok_s - 3000 / 3500.0) < 1e-6, "%g",
                  f.prompt_tok_s);
    replay_disconnect();
}
END_TEST

/* litellm's /metrics lies at /metrics/. */
START_TEST(metrics_with_a_slash_are_found)
{
    struct figures f;

    replay.folder = "litellm";
    replay.slashed = "HTTP/1.1 307 Temporary Redirect\r\nLocation: /metrics/\r\nContent-Length: "
                     "0\r\nConnection: close\r\n\r\n";
    replay_connect(NULL);
    replay_await(EVENT_READY, NULL);
    do {
        usleep(20000);
        remote_figures(replay_chat, &f);
    } while (strstr(f.why, "not asked yet"));
    ck_assert_str_eq(f.why, "");
    ck_assert(f.running == 3);
    replay_disconnect();
}
END_TEST

/* transformers serve lists a model when it was used. */
START_TEST(an_unlisted_model_can_be_named)
{
    replay.models = "{\"object\": \"list\", \"data\": []}";
    replay_connect("models/fox");
    replay_await(EVENT_READY, NULL);
    ck_assert_str_eq(remote_server(replay_chat)->model, "models/fox");
    replay_disconnect();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("connect_servers");
    TCase *t = tcase_create("servers");

    tcase_add_checked_fixture(t, replay_set_up, replay_tear_down);
    tcase_set_timeout(t, 90);
    tcase_add_loop_test(t, recorded_figures_are_read, 0, SERVERS);
    tcase_add_loop_test(t, recorded_answers_are_read, 0, SERVERS);
    tcase_add_test(t, counters_become_rates);
    tcase_add_test(t, metrics_with_a_slash_are_found);
    tcase_add_test(t, an_unlisted_model_can_be_named);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
