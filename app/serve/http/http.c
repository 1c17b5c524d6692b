/* See http.h. */
#include "app/serve/http/http.h"

#include "app/serve/api/routes.h"
#include "app/serve/common/exchange.h"
#include "app/serve/common/mhd.h"
#include "app/serve/common/model_registry.h"
#include "app/serve/dispatch/server_status.h"
#include "app/serve/http/access.h"
#include "app/serve/http/deadlines.h"
#include "app/serve/request/request_pool.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define BLOCK (32 << 10) /* bytes of an answer per write */

struct http {
    struct MHD_Daemon *daemon;
    struct deadlines *deadlines;
    int listening;
};

/* ---- checks of a request's headers ---- */

static const char *header(struct MHD_Connection *c, const char *name)
{
    return mhd.MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

static int check_type(const char *type, struct refusal *r)
{
    size_t n = type ? strcspn(type, "; \t") : 0;

    if (n == strlen("application/json") && strncasecmp(type, "application/json", n) == 0)
        return 0;
    return refuse(r, 415, "unsupported_media_type", NULL,
                  "send JSON as Content-Type: application/json");
}

static enum MHD_Result differs(void *length, enum MHD_ValueKind kind, const char *name,
                               const char *value)
{
    const char **first = length;

    if (strcasecmp(name, "Content-Length") == 0 && *first && strcmp(*first, value) != 0)
        *first = NULL;
    return MHD_YES;
}

/* Two Content-Length headers allow request smuggling through proxies. */
static bool is_one_length(struct MHD_Connection *c, const char *length)
{
    mhd.MHD_get_connection_values(c, MHD_HEADER_KIND, differs, &length);
    return length != NULL;
}

/* How the body will be sent. */
static int check_coding(struct MHD_Connection *c, struct refusal *r)
{
    const char *coding = header(c, "Content-Encoding"), *expect = header(c, "Expect");

    if (coding && strcasecmp(coding, "identity") != 0)
        return refuse(r, 415, "unsupported_encoding", NULL,
                      "a body in %.40s is not read: send it as it is", coding);
    if (expect && strcasecmp(expect, "100-continue") != 0)
        return refuse(r, 417, "expectation_failed", NULL,
                      "of what may be expected only 100-continue is known");
    return 0;
}

/* Checks the announced body. */
static int check_length(struct MHD_Connection *c, struct refusal *r)
{
    const char *length = header(c, "Content-Length"), *coding = header(c, "Transfer-Encoding");
    size_t digits = length ? strspn(length, "0123456789") : 0;

    if (length && coding)
        return refuse(r, 400, "invalid_request", NULL,
                      "Content-Length and Transfer-Encoding exclude each other");
    if (length && !is_one_length(c, length))
        return refuse(r, 400, "invalid_request", NULL, "there are two different Content-Lengths");
    if (length && (!digits || length[digits]))
        return refuse(r, 400, "invalid_request", NULL, "the Content-Length is no number");
    if (length && (digits > 18 || strtoull(length, NULL, 10) > SERVE_BODY_MOST))
        return refuse(r, 413, "body_too_large", NULL,
                      "the body has %.20s bytes; at most %zu are read", length, SERVE_BODY_MOST);
    return 0;
}

static int check_request(struct exchange *x, struct MHD_Connection *c, const char *method,
                         const char *path, struct refusal *r)
{
    struct access_headers h = {header(c, "Host"), header(c, "Origin"), header(c, "Authorization"),
                               header(c, "x-api-key")};
    const struct access *a = x->server->access;

    if (access_check_browser(a, &h, r) < 0)
        return -1;
    if (strcmp(method, "OPTIONS") == 0) {
        route_find(method, path, x->argument, sizeof x->argument, &x->allow, r);
        return x->allow ? 0 : -1;
    }
    x->form = strncmp(path, "/api/", 5) == 0 ? API_OLLAMA : API_OPENAI;
    x->route = route_find(method, path, x->argument, sizeof x->argument, &x->allow, r);
    if ((!x->route || !x->route->open) && access_check_key(a, &h, r) < 0)
        return -1;
    if (!x->route)
        return -1;
    /* Ollama's clients need not say it; a web page's request is refused by its Origin */
    if (strcmp(method, "POST") == 0 && x->route->form != API_OLLAMA &&
        check_type(header(c, "Content-Type"), r) < 0)
        return -1;
    return check_coding(c, r) < 0 ? -1 : check_length(c, r);
}

/* ---- writing ---- */

static struct deadline *deadline_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        mhd.MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

/* The client's part, see deadline_set. */
static void await(struct server *s, struct MHD_Connection *c, int times)
{
    deadline_set(s->http->deadlines, deadline_of(c), times);
}

/* The library asks for more of an answer: the client has read the previous data. Its thread. */
static ssize_t read_block(void *cls, uint64_t pos, char *out, size_t room)
{
    struct exchange *x = cls;
    ssize_t n = 0;

    pthread_mutex_lock(&x->lock);
    if (x->out.len > x->written) {
        size_t left = x->out.len - x->written;

        n = (ssize_t)(left < room ? left : room);
        memcpy(out, x->out.data + x->written, (size_t)n);
        x->written += (size_t)n;
        if (x->written == x->out.len) {
            strbuf_clear(&x->out);
            x->written = 0;
        }
    } else if (atomic_load(&x->gone) || (x->finished && x->broken)) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (x->finished) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        x->asleep = true;
        mhd.MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&x->lock);
    if (n > 0)
        deadline_resume(x->server->http->deadlines, deadline_of(x->connection));
    else if (n == 0)
        deadline_pause(x->server->http->deadlines, deadline_of(x->connection));
    return n;
}

static void drop_answer(void *cls)
{
    exchange_drop(cls);
}

/* A stream, or a body too long to be sent at once. */
static struct MHD_Response *in_blocks(struct exchange *x)
{
    uint64_t size = x->stream ? MHD_SIZE_UNKNOWN : x->out.len;
    struct MHD_Response *m;

    exchange_hold(x);
    m = mhd.MHD_create_response_from_callback(size, BLOCK, read_block, x, drop_answer);
    if (!m)
        exchange_drop(x);
    return m;
}

static struct MHD_Response *make_response(struct exchange *x)
{
    struct MHD_Response *m =
        x->stream || x->out.len > BLOCK
            ? in_blocks(x)
            : mhd.MHD_create_response_from_buffer(x->out.len, x->out.data ? x->out.data : "",
                                                  MHD_RESPMEM_MUST_COPY);

    if (m && x->stream) {
        mhd.MHD_add_response_header(m, "Cache-Control", "no-cache");
        mhd.MHD_add_response_header(m, "X-Accel-Buffering", "no");
    }
    return m;
}

/* Makes the response from the exchange. */
static enum MHD_Result send_answer(struct exchange *x, struct MHD_Connection *c)
{
    struct MHD_Response *m = make_response(x);
    const char *origin = access_origin(x->server->access, header(c, "Origin"));
    char seconds[16];
    enum MHD_Result sent;

    if (!m)
        return MHD_NO;
    if (x->type)
        mhd.MHD_add_response_header(m, "Content-Type", x->type);
    if (x->allow)
        mhd.MHD_add_response_header(m, "Allow", x->allow);
    if (atomic_load(&x->server->draining)) /* no other request of this client is answered */
        mhd.MHD_add_response_header(m, "Connection", "close");
    if (x->status == 401)
        mhd.MHD_add_response_header(m, "WWW-Authenticate", "Bearer");
    if (x->retry_after) {
        snprintf(seconds, sizeof seconds, "%u", x->retry_after);
        mhd.MHD_add_response_header(m, "Retry-After", seconds);
    }
    if (origin) {
        mhd.MHD_add_response_header(m, "Access-Control-Allow-Origin", origin);
        mhd.MHD_add_response_header(m, "Access-Control-Allow-Headers",
                                    "authorization, content-type, x-api-key, anthropic-version");
        mhd.MHD_add_response_header(m, "Vary", "Origin");
    }
    mhd.MHD_add_response_header(m, "X-Content-Type-Options", "nosniff");
    await(x->server, c, DEADLINE_ANSWER);
    sent = mhd.MHD_queue_response(c, (unsigned)x->status, m);
    mhd.MHD_destroy_response(m);
    return sent;
}

/* ---- callbacks of the library ---- */

static void name_peer(struct exchange *x, struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        mhd.MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;

    snprintf(x->peer, sizeof x->peer, "local");
    if (a && a->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)a)->sin_addr, x->peer,
                  sizeof x->peer);
    if (a && a->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, x->peer,
                  sizeof x->peer);
}

/* A connection begins or ends; its descriptor is still open. */
static void on_connection(void *cls, struct MHD_Connection *c, void **deadline,
                          enum MHD_ConnectionNotificationCode what)
{
    struct server *s = cls;
    const union MHD_ConnectionInfo *info =
        mhd.MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);

    if (what == MHD_CONNECTION_NOTIFY_CLOSED)
        deadline_close(s->http->deadlines, *deadline);
    else
        *deadline = deadline_open(s->http->deadlines, info ? info->connect_fd : -1);
}

/* The headers have arrived. A refusal is sent at once: the body is not read. */
static enum MHD_Result begin(struct server *s, struct MHD_Connection *c, const char *path,
                             const char *method, void **cls)
{
    struct exchange *x = exchange_new(s);
    const union MHD_ConnectionInfo *info =
        mhd.MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct refusal why = {0};

    await(s, c, DEADLINE_BODY);
    if (!x)
        return MHD_NO;
    *cls = x;
    x->connection = c;
    x->fd = info ? info->connect_fd : -1;
    x->body.limit = SERVE_BODY_MOST;
    name_peer(x, c);
    if (check_request(x, c, method, path, &why) < 0) {
        reply_refusal(x, &why);
        return send_answer(x, c);
    }
    if (!x->route) { /* OPTIONS */
        reply_text(x, 204, NULL, "", 0);
        return send_answer(x, c);
    }
    return MHD_YES;
}

/* The request is complete: calls its route here if the route needs nothing; otherwise suspends
 * the connection and leaves the call to a request thread. */
static enum MHD_Result answer(struct exchange *x, struct MHD_Connection *c)
{
    x->read = true;
    await(x->server, c, 0);
    if (x->body.failed)
        refuse(&x->why, 413, "body_too_large", NULL, "at most %zu bytes of a body are read",
               SERVE_BODY_MOST);
    if (x->why.status) {
        reply_refusal(x, &x->why);
    } else if (x->route->needs == NEEDS_NOTHING) {
        registry_look(x->server->registry);
        x->route->answer(x);
        registry_leave(x->server->registry);
    } else {
        x->asleep = true;
        mhd.MHD_suspend_connection(c);
        if (request_pool_submit(x->server->pool, x) == 0)
            return MHD_YES;
        refuse(&x->why, 503, "out_of_memory", NULL, "out of memory for the request");
        reply_refusal(x, &x->why);
        return MHD_YES;
    }
    return send_answer(x, c);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *path,
                                  const char *method, const char *version, const char *upload,
                                  size_t *n, void **request)
{
    struct exchange *x = *request;
    int status;

    if (!x)
        return begin(cls, c, path, method, request);
    if (*n) {
        if (x->status) /* refused already: the rest is discarded */
            return MHD_NO;
        strbuf_put(&x->body, upload, *n);
        if (x->body.failed) /* no length was given: it is not read to its end */
            return MHD_NO;
        *n = 0;
        return MHD_YES;
    }
    if (!x->read)
        return answer(x, c);
    pthread_mutex_lock(&x->lock);
    status = x->status;
    pthread_mutex_unlock(&x->lock);
    return status && !atomic_load(&x->gone) ? send_answer(x, c) : MHD_NO;
}

/* Watchers poll twice a second, which would hide everything else in the log. */
static bool is_glance(const struct exchange *x)
{
    return x->status == 200 && strcmp(x->route->path, "/moetop/state") == 0;
}

/* Logs a finished request, without any of its text: a line, or a row of the status. Called under
 * the lock. */
static void tell(struct exchange *x)
{
    struct ui_request r = {.status = x->status,
                           .prompt = x->prompt_tokens,
                           .cached = x->cached_tokens,
                           .made = x->completion_tokens,
                           .first_s = x->first_ns ? clock_seconds(x->first_ns - x->begun_ns) : 0,
                           .seconds = clock_seconds(clock_now() - x->begun_ns)};
    char tokens[80] = "";

    if (!x->route || is_glance(x))
        return;
    snprintf(r.who, sizeof r.who, "%.47s", x->peer);
    route_name(x->route, r.what, sizeof r.what);
    snprintf(r.text, sizeof r.text, "%s",
             x->idle                 ? "the client was silent for too long"
             : x->late               ? "the client took too long"
             : atomic_load(&x->gone) ? "client gone"
                                     : "");
    server_status_request(x->server->status, &r);
    if (!atomic_load(&x->server->plain))
        return;
    if (x->prompt_tokens)
        snprintf(tokens, sizeof tokens, ", %d tokens (%d cached) + %d", x->prompt_tokens,
                 x->cached_tokens, x->completion_tokens);
    fprintf(stderr, "moetop: %s %s %s %d%s, %.3f s%s%s\n", x->peer, x->route->method,
            x->route->path, x->status, tokens, r.seconds, r.text[0] ? ", " : "", r.text);
}

static void on_completed(void *cls, struct MHD_Connection *c, void **request,
                         enum MHD_RequestTerminationCode why)
{
    struct exchange *x = *request;

    if (!x)
        return;
    x->late = deadline_passed(x->server->http->deadlines, deadline_of(c));
    await(x->server, c, DEADLINE_HEAD);
    *request = NULL;
    pthread_mutex_lock(&x->lock);
    x->connection = NULL;
    x->fd = -1;
    x->asleep = false;
    x->idle = why == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED;
    if (why != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        atomic_store(&x->gone, true);
    tell(x);
    pthread_mutex_unlock(&x->lock);
    exchange_drop(x);
}

int http_start(struct server *s, int listening, int timeout_s, struct error *e)
{
    struct http *h;
    int rc;

    if ((rc = mhd_open(e)) < 0) {
        close(listening);
        return rc;
    }
    if (!(h = mem_alloc(1, sizeof *h))) {
        close(listening);
        return error_set(e, ERR_MEMORY, "out of memory for the server");
    }
    s->http = h;
    h->listening = listening;
    if ((rc = deadlines_start(&h->deadlines, timeout_s, e)) < 0)
        return rc;
    h->daemon = mhd.MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, s,
        MHD_OPTION_LISTEN_SOCKET, listening, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)SERVE_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)timeout_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, SERVE_HEADER_MOST + BLOCK, MHD_OPTION_END);
    return h->daemon ? 0 : error_set(e, ERR_IO, "the HTTP server cannot be started");
}

void http_quiesce(struct server *s)
{
    if (s->http && s->http->daemon)
        mhd.MHD_quiesce_daemon(s->http->daemon);
}

void http_stop(struct server *s)
{
    if (!s->http)
        return;
    if (s->http->daemon)
        mhd.MHD_stop_daemon(s->http->daemon);
    deadlines_stop(s->http->deadlines);
    close(s->http->listening);
    mem_free(s->http);
    s->http = NULL;
}
