/* See exchange.h. */
#include "app/serve/common/exchange.h"

#include "app/serve/common/mhd.h"
#include "app/serve/common/route.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <poll.h>
#include <string.h>

#define KEPT ((size_t)64 << 10) /* fewer written bytes are not removed yet */

struct exchange *exchange_new(struct server *s)
{
    struct exchange *x = mem_alloc(1, sizeof *x);

    if (!x)
        return NULL;
    x->server = s;
    x->references = 1;
    x->fd = -1;
    x->begun_ns = clock_now();
    pthread_mutex_init(&x->lock, NULL);
    return x;
}

void exchange_hold(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->references++;
    pthread_mutex_unlock(&x->lock);
}

void exchange_drop(struct exchange *x)
{
    int left;

    pthread_mutex_lock(&x->lock);
    left = --x->references;
    pthread_mutex_unlock(&x->lock);
    if (left)
        return;
    pthread_mutex_destroy(&x->lock);
    strbuf_release(&x->body);
    strbuf_release(&x->out);
    mem_free(x);
}

/* Called under the lock. */
static void wake(struct exchange *x)
{
    if (!x->asleep || !x->connection)
        return;
    x->asleep = false;
    mhd.MHD_resume_connection(x->connection);
}

/* Called under the lock: out is the answer. */
static void finish(struct exchange *x, int status, const char *type)
{
    x->status = x->out.failed ? 503 : status;
    if (x->out.failed)
        strbuf_clear(&x->out);
    x->type = type;
    x->finished = true;
    wake(x);
}

void reply_text(struct exchange *x, int status, const char *type, const char *text, size_t n)
{
    pthread_mutex_lock(&x->lock);
    strbuf_put(&x->out, text, n);
    finish(x, status, type);
    pthread_mutex_unlock(&x->lock);
}

static void reply_no_memory(struct exchange *x)
{
    static const char none[] = "{\"error\": {\"message\": \"out of memory\", \"type\": "
                               "\"server_error\", \"param\": null, \"code\": null}}";

    reply_text(x, 503, "application/json", none, strlen(none));
}

void reply_long_json(struct exchange *x, struct strbuf *text)
{
    if (text->failed) {
        strbuf_release(text);
        reply_no_memory(x);
        return;
    }
    pthread_mutex_lock(&x->lock);
    strbuf_release(&x->out);
    x->out = *text;
    *text = (struct strbuf){0};
    finish(x, 200, "application/json");
    pthread_mutex_unlock(&x->lock);
}

void reply_json(struct exchange *x, int status, json_t *o)
{
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

    json_decref(o);
    if (text)
        reply_text(x, status, "application/json", text, strlen(text));
    else
        reply_no_memory(x);
    free(text); /* allocated by jansson */
}

/* The status was sent already: the error is sent as an event. */
static void refuse_in_stream(struct exchange *x, json_t *o, enum api_form form)
{
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

    json_decref(o);
    if (text) {
        const char *begin = x->ndjson               ? ""
                            : form == API_ANTHROPIC ? "event: error\ndata: "
                                                    : "data: ";
        const char *end = x->ndjson ? "\n" : "\n\n";

        reply_stream_put(x, begin, strlen(begin));
        reply_stream_put(x, text, strlen(text));
        reply_stream_put(x, end, strlen(end));
    }
    reply_stream_end(x, !text);
    free(text); /* allocated by jansson */
}

void reply_refusal(struct exchange *x, const struct refusal *r)
{
    enum api_form form = x->route ? x->route->form : x->form;
    json_t *o = refusal_json(r, form);

    if (x->stream) {
        refuse_in_stream(x, o, form);
        return;
    }
    x->retry_after = r->retry_after;
    reply_json(x, r->status, o);
}

void reply_stream_begin(struct exchange *x, bool ndjson)
{
    pthread_mutex_lock(&x->lock);
    x->status = 200;
    x->ndjson = ndjson;
    x->type = ndjson ? "application/x-ndjson" : "text/event-stream";
    x->stream = true;
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

/* Removes written bytes: with a client that is always a little behind the buffer never becomes
 * empty. */
static void drop_written(struct exchange *x)
{
    if (x->written < KEPT || x->written < x->out.len / 2)
        return;
    memmove(x->out.data, x->out.data + x->written, x->out.len - x->written);
    x->out.len -= x->written;
    x->written = 0;
}

void reply_stream_put(struct exchange *x, const char *text, size_t n)
{
    pthread_mutex_lock(&x->lock);
    drop_written(x);
    strbuf_put(&x->out, text, n);
    if (x->out.failed)
        x->broken = x->finished = true;
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

void reply_stream_end(struct exchange *x, bool broken)
{
    pthread_mutex_lock(&x->lock);
    x->finished = true;
    x->broken |= broken;
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

size_t reply_waiting(struct exchange *x)
{
    size_t n;

    pthread_mutex_lock(&x->lock);
    n = x->out.len - x->written;
    pthread_mutex_unlock(&x->lock);
    return n;
}

/* The library does not watch a suspended connection, and notices a disconnect late while writing:
 * so the socket is checked. A client that has shut down its side counts as disconnected, since
 * nothing distinguishes the two before something is written. The library closes the socket after
 * on_completed, which clears it under the same lock. */
bool exchange_gone(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    if (x->fd >= 0 && !atomic_load(&x->gone)) {
        struct pollfd p = {.fd = x->fd, .events = POLLRDHUP};

        if (poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR))
            atomic_store(&x->gone, true);
    }
    pthread_mutex_unlock(&x->lock);
    return atomic_load(&x->gone);
}

const char *exchange_query(const struct exchange *x, const char *name)
{
    const char *value = NULL;

    if (mhd.MHD_lookup_connection_value_n(x->connection, MHD_GET_ARGUMENT_KIND, name, strlen(name),
                                          &value, NULL) != MHD_YES)
        return NULL;
    return value ? value : "";
}

static bool is_gone(void *x)
{
    return exchange_gone(x);
}

struct stop exchange_stop(struct exchange *x)
{
    return (struct stop){is_gone, x};
}
