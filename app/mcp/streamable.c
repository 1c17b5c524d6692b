/* See streamable.h. Messages are sent in order: one begins when the server has answered to the one
 * before, at least with a status. Redirections are not followed, so that the headers of the file go
 * only to the given address. */
#include "app/mcp/streamable.h"

#include "app/common/web.h"
#include "app/connect/http.h"
#include "app/connect/sse.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <string.h>
#include <strings.h>

#define FAREWELL_SECONDS 1L

struct streamable;

/* A request under way. */
struct flight {
    struct flight *next;
    struct streamable *owner;
    CURL *curl;
    struct curl_slist *headers;
    char *body; /* NULL: the GET that listens */
    struct sse sse;
    struct strbuf text; /* a body that is no stream of events */
    bool started, begun, events;
    long status; /* 0: not known yet */
    char detail[CURL_ERROR_SIZE];
};

struct streamable {
    struct mcp_transport base;
    CURLM *multi;
    struct flight *flights; /* oldest first */
    bool listened;          /* the GET was tried */
    bool moved;             /* something arrived: the caller looks at it before it waits */
    char session[256];      /* as the server named it; "": it did not */
};

/* ---- a request ---- */

static void flight_free(struct flight *f)
{
    if (f->started)
        web.curl_multi_remove_handle(f->owner->multi, f->curl);
    web.curl_easy_cleanup(f->curl);
    web.curl_slist_free_all(f->headers);
    sse_release(&f->sse);
    strbuf_release(&f->text);
    mem_free(f->body);
    mem_free(f);
}

static int on_event(void *ctx, const char *text, size_t n)
{
    struct streamable *s = ctx;

    s->base.take(s->base.ctx, text, n);
    return 0;
}

static size_t on_header(char *bytes, size_t one, size_t n, void *ctx)
{
    static const char name[] = "mcp-session-id:";
    struct flight *f = ctx;
    struct streamable *s = f->owner;
    size_t from = sizeof name - 1, end = n;

    (void)one;
    s->moved = true;
    web.curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &f->status);
    if (n <= from || strncasecmp(bytes, name, from) != 0)
        return n;
    while (from < end && bytes[from] == ' ')
        from++;
    while (end > from && (bytes[end - 1] == '\n' || bytes[end - 1] == '\r'))
        end--;
    if (end - from < sizeof s->session) {
        memcpy(s->session, bytes + from, end - from);
        s->session[end - from] = 0;
    }
    return n;
}

static size_t on_body(char *bytes, size_t one, size_t n, void *ctx)
{
    struct flight *f = ctx;
    const char *type = NULL;

    (void)one;
    f->owner->moved = true;
    if (!f->begun) {
        f->begun = true;
        web.curl_easy_getinfo(f->curl, CURLINFO_CONTENT_TYPE, &type);
        f->events = f->status == 200 && type && strncasecmp(type, "text/event-stream", 17) == 0;
    }
    if (f->events)
        return sse_feed(&f->sse, bytes, n, on_event, f->owner) == 0 ? n : 0;
    strbuf_put(&f->text, bytes, n);
    return f->text.failed ? 0 : n;
}

static int set_headers(struct flight *f, struct error *e)
{
    const struct streamable *s = f->owner;
    char **own = s->base.config->headers;
    int rc = web_header(&f->headers, "Accept",
                        f->body ? "application/json, text/event-stream" : "text/event-stream", e);

    if (rc == 0 && f->body)
        rc = web_header(&f->headers, "Content-Type", "application/json", e);
    if (rc == 0) /* no wait for "100 Continue" */
        rc = web_header(&f->headers, "Expect", "", e);
    if (rc == 0 && *s->session)
        rc = web_header(&f->headers, "Mcp-Session-Id", s->session, e);
    if (rc == 0 && *s->base.version)
        rc = web_header(&f->headers, "MCP-Protocol-Version", s->base.version, e);
    for (; rc == 0 && own && *own; own += 2)
        rc = web_header(&f->headers, own[0], own[1], e);
    return rc;
}

static void set_up(struct flight *f)
{
    CURL *c = f->curl;

    web.curl_easy_setopt(c, CURLOPT_URL, f->owner->base.config->url);
    web.curl_easy_setopt(c, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
    web.curl_easy_setopt(c, CURLOPT_PRIVATE, f);
    web.curl_easy_setopt(c, CURLOPT_ERRORBUFFER, f->detail);
    web.curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    web.curl_easy_setopt(c, CURLOPT_HEADERDATA, f);
    web.curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    web.curl_easy_setopt(c, CURLOPT_WRITEDATA, f);
    if (!f->body)
        return;
    web.curl_easy_setopt(c, CURLOPT_POSTFIELDS, f->body);
    web.curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(f->body));
}

/* Adds a request to the end of the queue; text NULL: the one that listens. */
static int flight_add(struct streamable *s, const char *text, size_t n, struct error *e)
{
    struct flight *f = mem_alloc(1, sizeof *f), **end = &s->flights;

    if (!f)
        return error_set(e, ERR_MEMORY, "out of memory for a request");
    f->owner = s;
    sse_init(&f->sse);
    f->sse.line.limit = f->sse.data.limit = f->text.limit = MCP_MESSAGE_MOST;
    f->curl = web_handle();
    f->body = text ? mem_string_n(text, n) : NULL;
    if (!f->curl || (text && !f->body)) {
        flight_free(f);
        return error_set(e, ERR_MEMORY, "out of memory for a request");
    }
    while (*end)
        end = &(*end)->next;
    *end = f;
    return 0;
}

/* ---- the queue ---- */

/* Starts what may start: the first message, and those whose predecessors are answered. Headers are
 * set now, when what the earlier answers said is known. */
static int start_flights(struct streamable *s, struct error *e)
{
    for (struct flight *f = s->flights; f; f = f->next) {
        int rc;

        if (!f->started) {
            if ((rc = set_headers(f, e)) < 0)
                return rc;
            set_up(f);
            web.curl_easy_setopt(f->curl, CURLOPT_HTTPHEADER, f->headers);
            if (web.curl_multi_add_handle(s->multi, f->curl) != CURLM_OK)
                return error_set(e, ERR_IO, "the request cannot be started");
            f->started = true;
        }
        if (f->body && !f->status)
            break;
    }
    return 0;
}

static int refused(struct streamable *s, const struct flight *f, struct error *e)
{
    char own[200] = "";
    bool said = http_error_text(strbuf_text(&f->text), f->text.len, own, sizeof own);

    s->base.forgotten = f->status == 404 && *s->session;
    if (f->status == 401 || f->status == 403)
        return error_set(e, ERR_IO, "it refuses (HTTP %ld)%s%s; \"headers\" may hold a key",
                         f->status, said ? ": " : "", own);
    return error_set(e, ERR_IO, "it answers HTTP %ld%s%s", f->status, said ? ": " : "", own);
}

/* A request has ended. The one that listens may end as it likes. */
static int finish(struct streamable *s, struct flight *f, CURLcode code, struct error *e)
{
    if (!f->body)
        return 0;
    web.curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &f->status);
    if (code == CURLE_WRITE_ERROR)
        return error_set(e, ERR_IO, "it answers more than %zu MiB", MCP_MESSAGE_MOST >> 20);
    if (code != CURLE_OK)
        return error_set(e, ERR_IO, "%s", web_failure(code, f->detail));
    if (f->status < 200 || f->status > 299)
        return refused(s, f, e);
    if (f->text.len && !f->events)
        s->base.take(s->base.ctx, f->text.data, f->text.len);
    return 0;
}

static int take_finished(struct streamable *s, struct error *e)
{
    CURLMsg *m;
    int left, rc = 0;

    while (rc == 0 && (m = web.curl_multi_info_read(s->multi, &left))) {
        struct flight *f = NULL, **at = &s->flights;
        CURLcode code = m->data.result;

        if (m->msg != CURLMSG_DONE)
            continue;
        web.curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &f);
        while (*at && *at != f)
            at = &(*at)->next;
        if (*at)
            *at = f->next;
        s->moved = true;
        rc = finish(s, f, code, e);
        flight_free(f);
    }
    return rc;
}

/* ---- the transport ---- */

static void streamable_forget(struct streamable *s)
{
    while (s->flights) {
        struct flight *f = s->flights;

        s->flights = f->next;
        flight_free(f);
    }
    s->session[0] = 0;
    s->listened = false;
}

static int streamable_open(struct mcp_transport *t, struct error *e)
{
    streamable_forget((struct streamable *)t);
    return 0;
}

static int streamable_send(struct mcp_transport *t, const char *text, size_t n, struct error *e)
{
    return flight_add((struct streamable *)t, text, n, e);
}

static int streamable_pump(struct mcp_transport *t, int wake, int timeout_ms, struct error *e)
{
    struct streamable *s = (struct streamable *)t;
    struct curl_waitfd w = {.fd = wake, .events = CURL_WAIT_POLLIN};
    int running, rc;

    if (*t->version && !s->listened) {
        s->listened = true;
        if ((rc = flight_add(s, NULL, 0, e)) < 0)
            return rc;
    }
    if ((rc = start_flights(s, e)) < 0)
        return rc;
    s->moved = false;
    if (web.curl_multi_perform(s->multi, &running) != CURLM_OK)
        return error_set(e, ERR_IO, "the request failed");
    if ((rc = take_finished(s, e)) < 0 || s->moved)
        return rc;
    if (web.curl_multi_poll(s->multi, &w, 1, timeout_ms < 0 ? 3600 * 1000 : timeout_ms, NULL) !=
            CURLM_OK ||
        web.curl_multi_perform(s->multi, &running) != CURLM_OK)
        return error_set(e, ERR_IO, "the request failed");
    return take_finished(s, e);
}

static size_t drop(char *bytes, size_t one, size_t n, void *ctx)
{
    return n;
}

/* Tells the server that the session is over. */
static void farewell(struct streamable *s)
{
    struct flight f = {.owner = s, .curl = web_handle()};
    struct error ignored;

    if (f.curl && set_headers(&f, &ignored) == 0) {
        web.curl_easy_setopt(f.curl, CURLOPT_URL, s->base.config->url);
        web.curl_easy_setopt(f.curl, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
        web.curl_easy_setopt(f.curl, CURLOPT_CUSTOMREQUEST, "DELETE");
        web.curl_easy_setopt(f.curl, CURLOPT_HTTPHEADER, f.headers);
        web.curl_easy_setopt(f.curl, CURLOPT_WRITEFUNCTION, drop);
        web.curl_easy_setopt(f.curl, CURLOPT_TIMEOUT, FAREWELL_SECONDS);
        web.curl_easy_perform(f.curl);
    }
    web.curl_slist_free_all(f.headers);
    web.curl_easy_cleanup(f.curl);
}

static void streamable_close(struct mcp_transport *t)
{
    struct streamable *s = (struct streamable *)t;
    char session[sizeof s->session];

    memcpy(session, s->session, sizeof session);
    streamable_forget(s);
    memcpy(s->session, session, sizeof session);
    if (*session && !t->forgotten)
        farewell(s);
    s->session[0] = 0;
}

static void streamable_free(struct mcp_transport *t)
{
    struct streamable *s = (struct streamable *)t;

    streamable_forget(s);
    web.curl_multi_cleanup(s->multi);
    mem_free(s);
}

struct mcp_transport *mcp_streamable_new(const struct mcp_server_config *config)
{
    static const struct mcp_transport_ops ops = {streamable_open, streamable_send, streamable_pump,
                                                 streamable_close, streamable_free};
    struct streamable *s = web_open(NULL) == 0 ? mem_alloc(1, sizeof *s) : NULL;

    if (!s)
        return NULL;
    s->base = (struct mcp_transport){.ops = &ops, .config = config};
    s->multi = web.curl_multi_init();
    if (s->multi)
        return &s->base;
    mem_free(s);
    return NULL;
}
