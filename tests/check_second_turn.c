/* A second turn of models that cannot be cut back at will, one of each kind (short convolution,
 * delta nets, Mamba 2, Kimi delta, windows): whatever becomes of the first answer in the prompt
 * (kept, without its reasoning, another one), no more than that answer and CHECKPOINT_EVERY tokens
 * is computed again, and what is said is what a session says that begins with nothing. */
#include "engine/base/mem.h"
#include "engine/run/state/checkpoints.h"
#include "engine/run/engine.h"
#include "engine/run/prompt.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER 40

static const char *const models[] = {"lfm2moe",   "qwen35moe",   "qwen3next", "granitehybrid",
                                     "nemotronh", "bailingmoe3", "gpt-oss",   "gemma4"};

static struct engine *open_model(const char *name)
{
    char below[100];
    const char *path;
    struct engine *g = NULL;
    struct error e = {0};
    struct engine_config c = {.context = 2048,
                              .ubatch = 32,
                              .n_threads = 2,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .cache_dir = support_tmpdir(),
                              .tune = DEVICE_TUNE_OFF,
                              .convert = -1};

    snprintf(below, sizeof below, "ggufs/%s.gguf", name);
    if (!(path = support_shared(below)))
        return NULL;
    c.model_path = path;
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    return g;
}

struct heard {
    char text[4096];
    size_t n;
};

static int hear(void *ctx, struct event *ev)
{
    struct heard *h = ctx;

    if (ev->kind == EVENT_TOKEN && h->n + ev->token.len < sizeof h->text) {
        memcpy(h->text + h->n, ev->token.text, ev->token.len);
        h->n += ev->token.len;
    }
    h->text[h->n] = 0;
    return 0;
}

static struct turn_done_event ask(struct engine *g, struct prompt_history *history,
                                  struct message *m, size_t n, struct heard *h)
{
    struct dialogue d = {.messages = m, .n_messages = n};
    struct turn t = {.max_tokens = ANSWER,
                     .ignore_eos = true,
                     .sampling = {.temperature = 0.0f, .repeat_penalty = 1.0f}};
    struct turn_done_event done;
    struct error e = {0};

    h->n = 0;
    ck_assert_msg(prompt_turn(g, history, &d, &t, hear, h, &done, &e) == 0, "%s", e.text);
    return done;
}

/* Asked after `first` was said, with `said` in its place. */
static void check_second(const char *model, struct engine *g, struct engine *fresh,
                         struct message *m, const char *said, const char *how)
{
    struct prompt_history history = {0};
    struct heard *h = mem_alloc(1, sizeof *h), *again = mem_alloc(1, sizeof *again);
    struct turn_done_event first, second;
    char *kept;

    engine_session_clear(g);
    engine_session_clear(fresh);
    first = ask(g, &history, m, 1, h);
    kept = strdup(h->text);
    m[1].text = said ? (char *)said : kept;
    second = ask(g, &history, m, 3, h);
    ask(fresh, said ? NULL : &history, m, 3, again);
    ck_assert_msg(strcmp(h->text, again->text) == 0, "%s, %s: another text", model, how);
    printf("%s, %s: %d tokens asked, %d more, %d of them in the cache, %d computed again\n", model,
           how, first.prompt_tokens, second.prompt_tokens - first.prompt_tokens,
           second.cached_tokens, second.recomputed_tokens);
    ck_assert_int_gt(first.prompt_tokens, 2 * CHECKPOINT_EVERY);
    ck_assert_msg(second.recomputed_tokens <= ANSWER + CHECKPOINT_EVERY, "%s, %s: %d again", model,
                  how, second.recomputed_tokens);
    /* what the first turn asked is there but for the end of it */
    ck_assert_msg(second.cached_tokens >= first.prompt_tokens - CHECKPOINT_EVERY,
                  "%s, %s: %d of %d", model, how, second.cached_tokens, first.prompt_tokens);
    free(kept);
    mem_free(h);
    mem_free(again);
    prompt_history_release(&history);
}

static const struct {
    const char *said, *how;
} answers[] = {
    {NULL, "as it was said"}, {"It ran home.", "without its reasoning"}, {"", "dropped"}};

START_TEST(no_more_than_the_answer_again)
{
    struct engine *g = open_model(models[_i]), *fresh = g ? open_model(models[_i]) : NULL;
    char tale[1200] = "";
    struct message m[] = {{.role = ROLE_USER, .text = tale},
                          {.role = ROLE_ASSISTANT, .text = NULL},
                          {.role = ROLE_USER, .text = "And what did the fox do then?"}};

    if (!g)
        return;
    for (int i = 0; i < 12; i++)
        snprintf(tale + strlen(tale), sizeof tale - strlen(tale),
                 "On day %d a fox who lived in a wood went out to look for the river. ", i);
    for (int k = 0; k < 3; k++)
        if (support_turn(_i + k, 3))
            check_second(models[_i], g, fresh, m, answers[k].said, answers[k].how);
    engine_close(g);
    engine_close(fresh);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("second turn");
    TCase *t = tcase_create("models");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, no_more_than_the_answer_again, 0, (int)(sizeof models / sizeof *models));
    suite_add_tcase(s, t);
    return support_run(s);
}
