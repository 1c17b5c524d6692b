/* See job.h. */
#include "app/serve/request/job.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static void make_id(char *out, size_t size, const char *prefix)
{
    uint64_t bits[2] = {clock_now(), (uint64_t)getpid()};

    if (getrandom(bits, sizeof bits, GRND_NONBLOCK) != (ssize_t)sizeof bits)
        bits[1] ^= (uint64_t)(uintptr_t)out;
    snprintf(out, size, "%s%016llx%08llx", prefix, (unsigned long long)bits[0],
             (unsigned long long)(bits[1] & 0xffffffffu));
}

struct job *job_new(struct exchange *x, const struct dialect *dialect, const char *prefix)
{
    struct job *j = mem_alloc(1, sizeof *j);
    struct server *s = x->server;
    uint64_t seed = s->sampling.seed;

    if (!j)
        return NULL;
    exchange_hold(x);
    j->x = x;
    j->server = s;
    j->dialect = dialect;
    j->other_model = -1;
    j->format_name = "response_format";
    j->created = time(NULL);
    make_id(j->id, sizeof j->id, prefix);
    if (s->fresh_seeds && getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = clock_now();
    j->wish = (struct wish){
        .ignore_eos = s->ignore_eos, .n = 1, .max_tokens = s->max_tokens, .sampling = s->sampling};
    j->wish.sampling.seed = s->fresh_seeds ? seed >> 1 : seed;
    return j;
}

static void task_release(struct task *t)
{
    turn_release(&t->turn);
    mem_free(t->prompt);
    strbuf_release(&t->text);
    strbuf_release(&t->reasoning);
    strbuf_release(&t->call);
    strbuf_release(&t->held);
    strbuf_release(&t->arguments);
    json_decref(t->sent_calls);
    json_decref(t->logprobs);
    json_decref(t->fresh);
    json_decref(t->tool_calls);
    mem_free(t->embedding);
}

void job_free(struct job *j)
{
    if (!j)
        return;
    for (int i = 0; i < j->n_tasks; i++)
        task_release(&j->tasks[i]);
    mem_free(j->tasks);
    for (size_t i = 0; i < j->n_stops; i++)
        mem_free(j->stops[i]);
    mem_free(j->stops);
    grammar_free(j->grammar);
    expert_edits_free(j->edits);
    mem_free(j->opening);
    strbuf_release(&j->line);
    json_decref(j->body);
    exchange_drop(j->x);
    mem_free(j);
}

/* A copy of n ids; n > 0. */
static int *copy_ids(const int *ids, int n)
{
    int *copy = mem_alloc((size_t)n, sizeof *copy);

    if (copy)
        memcpy(copy, ids, (size_t)n * sizeof *copy);
    return copy;
}

static int copy_stops(const struct job *j, struct turn *t)
{
    if (!j->n_stops)
        return 0;
    t->stops = mem_alloc(j->n_stops, sizeof *t->stops);
    for (size_t i = 0; t->stops && i < j->n_stops; i++) {
        if (!(t->stops[i] = mem_string(j->stops[i])))
            return -1;
        t->n_stops++;
    }
    return t->stops ? 0 : -1;
}

static int fill_task(struct job *j, struct task *t, const struct prompt *p, int index)
{
    const struct wish *w = &j->wish;

    t->job = j;
    t->index = index;
    t->turn = (struct turn){.prompt = *p,
                            .sampling = w->sampling,
                            .max_tokens = (int)w->max_tokens,
                            .ignore_eos = w->ignore_eos,
                            .logprobs = w->logprobs,
                            .top_logprobs = (int)w->top_logprobs,
                            .score_prompt = w->logprobs && w->echo,
                            .embed = w->embed,
                            .most_ns = (uint64_t)w->most_ms * CLOCK_MILLI,
                            .adapters = true,
                            .edited = true,
                            .edits = expert_edits_share(j->edits)};
    memcpy(t->turn.strengths, w->strengths, sizeof w->strengths);
    t->turn.sampling.seed += (uint64_t)(index % (int)w->n);
    t->turn.grammar = grammar_share(j->grammar);
    t->turn.begun = j->opening ? mem_string(j->opening) : NULL;
    t->turn.prompt.ids = copy_ids(p->ids, p->n + 2 * p->n_messages);
    if (w->echo)
        t->prompt = copy_ids(p->ids, p->n);
    t->n_prompt = p->n;
    t->goes_on = p->goes_on;
    /* constrained to a schema: the answer is JSON */
    t->answers = !w->tools || w->call || p->goes_on ||
                 (j->grammar && !field_get(j->body, "grammar"));
    if (w->logprobs) {
        t->logprobs = json_array();
        t->fresh = json_array();
    }
    return !t->turn.prompt.ids || (j->opening && !t->turn.begun) || (w->echo && !t->prompt) ||
                   copy_stops(j, &t->turn) < 0 || (w->logprobs && (!t->logprobs || !t->fresh))
               ? -1
               : 0;
}

int job_tasks(struct job *j, struct prompt *prompts, int n_prompts, struct refusal *r)
{
    int n = (int)j->wish.n, total = n_prompts * n, rc = 0;

    j->n_prompts = n_prompts;
    j->tasks = mem_alloc((size_t)total, sizeof *j->tasks);
    for (; j->tasks && rc == 0 && j->n_tasks < total; j->n_tasks++)
        rc = fill_task(j, &j->tasks[j->n_tasks], &prompts[j->n_tasks / n], j->n_tasks);
    if (!j->tasks || rc < 0)
        rc = refuse(r, 503, "out_of_memory", NULL, "out of memory for the request");
    j->left = j->n_tasks;
    for (int i = 0; i < n_prompts; i++)
        mem_free(prompts[i].ids);
    return rc;
}

/* Takes o. */
static void put_json(struct strbuf *out, json_t *o)
{
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

    json_decref(o);
    if (text)
        strbuf_puts(out, text);
    else
        out->failed = true;
    free(text); /* allocated by jansson */
}

void job_event(struct job *j, const char *name, json_t *o)
{
    if (name)
        strbuf_printf(&j->line, "event: %s\n", name);
    strbuf_puts(&j->line, "data: ");
    put_json(&j->line, o);
    strbuf_puts(&j->line, "\n\n");
}

void job_line(struct job *j, json_t *o)
{
    put_json(&j->line, o);
    strbuf_putc(&j->line, '\n');
}

struct usage job_usage(const struct job *j)
{
    struct usage u = {0};

    for (int i = 0; i < j->n_tasks; i++) {
        const struct task *t = &j->tasks[i];

        u.completion += t->done.completion_tokens;
        u.reasoning += t->reasoning_tokens;
        if (i % (int)j->wish.n)
            continue;
        u.prompt += t->n_prompt;
        u.cached += t->done.cached_tokens;
        u.stored += t->done.stored_tokens;
    }
    return u;
}
