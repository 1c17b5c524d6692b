/* See pipe.h. */
#include "app/mcp/pipe.h"

#include "app/mcp/process.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define LOGGED 1000 /* most lines of its standard error that are logged, a start */

struct pipe_end {
    struct mcp_transport base;
    struct mcp_process process;
    struct strbuf out;        /* not written yet */
    struct strbuf line, said; /* unfinished lines of its output, and of its error */
    int logged;
};

static int pipe_open(struct mcp_transport *t, struct error *e)
{
    struct pipe_end *s = (struct pipe_end *)t;

    strbuf_clear(&s->out);
    strbuf_clear(&s->line);
    strbuf_clear(&s->said);
    s->out.limit = s->line.limit = MCP_MESSAGE_MOST;
    s->logged = 0;
    return mcp_process_start(&s->process, t->config, e);
}

/* The connection is over: says how the process ended. */
static int over(struct pipe_end *s, struct error *e)
{
    char how[40];

    mcp_process_end(&s->process, false, how, sizeof how);
    return error_set(e, ERR_IO, "the server has ended%s%s", *how ? ": " : "", how);
}

static int write_out(struct pipe_end *s, struct error *e)
{
    while (s->out.len) {
        ssize_t n = write(s->process.in, s->out.data, s->out.len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : over(s, e);
        memmove(s->out.data, s->out.data + n, s->out.len - (size_t)n);
        s->out.len -= (size_t)n;
    }
    return 0;
}

static int pipe_send(struct mcp_transport *t, const char *text, size_t n, struct error *e)
{
    struct pipe_end *s = (struct pipe_end *)t;

    if (!s->process.pid)
        return error_set(e, ERR_IO, "the server has ended");
    strbuf_put(&s->out, text, n);
    strbuf_putc(&s->out, '\n');
    if (s->out.failed)
        return error_set(e, ERR_IO, "it does not read what it is sent (more than %zu MiB)",
                         MCP_MESSAGE_MOST >> 20);
    return write_out(s, e);
}

static void log_line(struct pipe_end *s)
{
    size_t n = s->said.len;

    while (n && s->said.data[n - 1] == '\r')
        n--;
    if (n && s->logged < LOGGED)
        log_write(LOG_LEVEL_INFO, "mcp %s: %.*s", s->base.config->name, (int)n, s->said.data);
    if (n && s->logged++ == LOGGED)
        log_write(LOG_LEVEL_WARNING, "mcp %s: its further lines are left out",
                  s->base.config->name);
    strbuf_clear(&s->said);
}

/* Bytes of its standard error; a line is cut where the log would cut it. */
static void take_error(struct pipe_end *s, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n')
            log_line(s);
        else if (s->said.len < LOG_TEXT)
            strbuf_putc(&s->said, bytes[i]);
    }
}

static int take_output(struct pipe_end *s, const char *bytes, size_t n, struct error *e)
{
    while (n) {
        const char *end = memchr(bytes, '\n', n);
        size_t part = end ? (size_t)(end - bytes) : n;

        strbuf_put(&s->line, bytes, part);
        if (s->line.failed)
            return error_set(e, ERR_IO, "it wrote a line of more than %zu MiB",
                             MCP_MESSAGE_MOST >> 20);
        if (end) {
            if (s->line.len)
                s->base.take(s->base.ctx, s->line.data, s->line.len);
            strbuf_clear(&s->line);
        }
        bytes += part + (end != NULL);
        n -= part + (end != NULL);
    }
    return 0;
}

/* 1: end of the file. */
static int read_from(struct pipe_end *s, int *fd, bool error, struct error *e)
{
    char bytes[1 << 16];
    ssize_t n = read(*fd, bytes, sizeof bytes);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n <= 0) {
        close(*fd);
        *fd = -1;
        return 1;
    }
    if (!error)
        return take_output(s, bytes, (size_t)n, e);
    take_error(s, bytes, (size_t)n);
    return 0;
}

static int pipe_pump(struct mcp_transport *t, int wake, int timeout_ms, struct error *e)
{
    struct pipe_end *s = (struct pipe_end *)t;
    struct pollfd p[4] = {{s->process.out, POLLIN, 0},
                          {s->process.err, POLLIN, 0},
                          {s->out.len ? s->process.in : -1, POLLOUT, 0},
                          {wake, POLLIN, 0}};
    int rc;

    if (poll(p, 4, timeout_ms) < 0)
        return errno == EINTR ? 0 : error_set(e, ERR_IO, "poll: %s", strerror(errno));
    if (p[1].revents)
        read_from(s, &s->process.err, true, e);
    if (p[2].revents && (rc = write_out(s, e)) < 0)
        return rc;
    if (!p[0].revents)
        return 0;
    rc = read_from(s, &s->process.out, false, e);
    return rc > 0 ? over(s, e) : rc;
}

static void pipe_close(struct mcp_transport *t)
{
    struct pipe_end *s = (struct pipe_end *)t;

    mcp_process_end(&s->process, false, NULL, 0);
}

static void pipe_free(struct mcp_transport *t)
{
    struct pipe_end *s = (struct pipe_end *)t;

    pipe_close(t);
    strbuf_release(&s->out);
    strbuf_release(&s->line);
    strbuf_release(&s->said);
    mem_free(s);
}

struct mcp_transport *mcp_pipe_new(const struct mcp_server_config *config)
{
    static const struct mcp_transport_ops ops = {pipe_open, pipe_send, pipe_pump, pipe_close,
                                                 pipe_free};
    struct pipe_end *s = mem_alloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->base = (struct mcp_transport){.ops = &ops, .config = config};
    s->process = (struct mcp_process){0, -1, -1, -1};
    return &s->base;
}
