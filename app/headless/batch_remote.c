/* See batch_remote.h. Running lines are in a ring; the oldest one is awaited and written when its
 * slot is needed, so the output has the order of the input. The other keys of a line are fields of
 * the server's API and are copied into its request unchanged. */
#include "app/headless/batch_remote.h"

#include "app/common/signals.h"
#include "app/connect/answer.h"
#include "app/headless/batch_answer.h"
#include "app/headless/batch_line.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    const struct server *server;
    pthread_t thread;
    bool taken, running; /* in the ring; its thread was started */
    json_t *o;           /* the output object */
    struct request request;
    struct strbuf text, reasoning;
    struct turn_done_event done;
    int rc;
    struct error why;
};

static bool interrupted(void *ctx)
{
    return signals_last() != 0;
}

static void tell(void *ctx, const char *line)
{
    fprintf(stderr, "moetop: %s\n", line);
}

static int on_event(void *ctx, struct event *ev)
{
    struct job *j = ctx;

    if (ev->kind == EVENT_TOKEN)
        strbuf_put(ev->token.part == PART_REASONING ? &j->reasoning : &j->text, ev->token.text,
                   ev->token.len);
    return 0;
}

static void *answer(void *ctx)
{
    struct job *j = ctx;
    const struct answer_listener to = {on_event, interrupted, NULL, j};

    j->rc = answer_remote(j->server, &j->request, &to, &j->done, &j->why);
    if (j->rc == 0 && j->done.reason == STOP_CANCELLED)
        j->rc = error_set(&j->why, ERR_CANCELLED, "interrupted");
    if (j->rc == 0 && (j->text.failed || j->reasoning.failed))
        j->rc = error_set(&j->why, ERR_MEMORY, "out of memory for the answer");
    return NULL;
}

/* The line's own fields override those of the options. */
static int add_fields(struct request *r, const char *text, size_t n, struct error *e)
{
    static const char *const not_these[] = {"id", "prompt", "messages", "system", "raw"};
    json_t *line = n && text[0] == '{' ? json_read(text, n, "the line", e) : json_object(), *body;
    char *whole = NULL;

    for (size_t i = 0; i < sizeof not_these / sizeof *not_these; i++)
        json_object_del(line, not_these[i]);
    body = line && json_object_size(line) ? json_loads(r->body, 0, NULL) : NULL;
    if (body && json_object_update(body, line) == 0 && (whole = json_dumps(body, JSON_COMPACT))) {
        mem_free(r->body);
        r->body = mem_string(whole);
    }
    free(whole); /* allocated by jansson */
    json_decref(body);
    json_decref(line);
    return r->body ? 0 : error_set(e, ERR_MEMORY, "out of memory for the request");
}

static int make_request(const struct batch_remote *b, struct job *j, const char *text, size_t n)
{
    struct batch_line line = {0};
    int rc = batch_line_read(&line, text, n, b->defaults, b->o->raw, b->system, &j->why);

    if (line.id)
        json_object_set_new(j->o, "id", json_loads(line.id, JSON_DECODE_ANY, NULL));
    if (rc == 0)
        rc = request_make(b->o, j->server, &line.said, line.turn.max_tokens, NULL, &j->request,
                          &j->why);
    if (rc == 0)
        rc = add_fields(&j->request, text, n, &j->why);
    batch_line_release(&line);
    return rc;
}

static void begin(struct batch_remote *b, struct job *j, const struct server *server, size_t index)
{
    const struct batch_input *in = b->in;
    const char *text = in->line ? in->line : "";

    *j = (struct job){.server = server, .taken = true, .o = batch_answer_new(index, text, in->n)};
    if (in->too_long)
        j->rc = error_set(&j->why, ERR_INPUT, "the line is longer than %zu MiB",
                          BATCH_LINE_MAX >> 20);
    else
        j->rc = make_request(b, j, text, in->n);
    stats_begin_turn(b->stats);
    if (j->rc < 0)
        return;
    j->running = pthread_create(&j->thread, NULL, answer, j) == 0;
    if (!j->running)
        j->rc = error_set(&j->why, ERR_MEMORY, "no thread for the line could be started");
}

static void release(struct job *j)
{
    request_release(&j->request);
    strbuf_release(&j->text);
    strbuf_release(&j->reasoning);
    json_decref(j->o);
    *j = (struct job){0};
}

/* Waits for a line and writes it, unless the run must end. */
static int finish(struct batch_remote *b, struct job *j, bool write, struct error *e)
{
    int rc = 0;

    if (!j->taken)
        return 0;
    if (j->running)
        pthread_join(j->thread, NULL);
    if (j->rc == 0) {
        batch_answer_put(j->o, &j->text, &j->reasoning, &j->done);
        stats_add_turn(b->stats, &j->done);
    }
    if (write && batch_is_fatal(j->rc)) {
        rc = j->rc;
        *e = j->why;
    } else if (write) {
        b->failed += j->rc < 0;
        if (j->rc < 0)
            batch_answer_failed(j->o, j->rc, &j->why);
        if ((rc = batch_output_write(b->out, j->o, e)) == 0)
            b->written++;
    }
    release(j);
    return rc;
}

/* Skips lines that an earlier run answered. 1: there is one to answer, 0: the end. */
static int next_line(struct batch_remote *b, size_t *read, struct error *e)
{
    const struct batch_input *in = b->in;
    int rc;

    while ((rc = batch_input_next(b->in, e)) > 0 && ++*read <= b->out->done_before)
        if ((rc = batch_output_check(b->out, *read - 1, in->line ? in->line : "", in->n, e)) < 0)
            break;
    return rc;
}

int batch_remote_run(struct batch_remote *b, struct error *e)
{
    const struct options *o = b->o;
    struct job *jobs = mem_alloc((size_t)b->parallel, sizeof *jobs);
    const struct server_address at = server_address(o);
    struct server server;
    size_t read = 0, n = 0;
    int rc = jobs ? server_open(&server, &at, interrupted, tell, NULL, e)
                  : error_set(e, ERR_MEMORY, "out of memory for the batch"),
        more = 1;

    if (rc == 0)
        stats_remote(b->stats, server.model, server.http.base);
    while (rc == 0 && (more = next_line(b, &read, e)) > 0) {
        struct job *j = &jobs[n++ % (size_t)b->parallel];

        if ((rc = finish(b, j, true, e)) == 0)
            begin(b, j, &server, read - 1);
    }
    rc = rc == 0 && more < 0 ? more : rc;
    for (size_t i = 0; jobs && i < (size_t)b->parallel; i++) {
        int last = finish(b, &jobs[(n + i) % (size_t)b->parallel], rc == 0, e);

        rc = rc == 0 ? last : rc;
    }
    mem_free(jobs);
    return rc;
}
