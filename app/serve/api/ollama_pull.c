/* See ollama_pull.h. /api/pull: another moetop downloads the model (-hf, --fetch); a thread of its
 * own passes on how far it is, and adds the model to the registry. Only with --allow-pull. */
#include "app/serve/api/ollama_pull.h"

#include "app/serve/api/apis.h"
#include "app/serve/common/exchange.h"
#include "app/serve/common/model_registry.h"
#include "app/serve/common/server.h"
#include "app/serve/dispatch/server_status.h"
#include "app/serve/request/fields.h"
#include "app/serve/request/request_fields.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PULLS_MOST 4
#define LOOK_MS 200
#define LINE_MOST 1024

extern char **environ;

static atomic_int running;

struct pull {
    struct exchange *x; /* a reference */
    char name[300];     /* as the request has it: it becomes the model's */
    char repo[300];     /* USER/REPO[:QUANT] */
    bool stream;
    pid_t child;
    int fds[2]; /* the child's stdout and stderr; -1: closed */
    struct strbuf text[2];
    char problem[LINE_MOST]; /* the newest line of stderr that is no progress */
};

/* ---- the child ---- */

static int spawn(struct pull *p)
{
    char *argv[] = {(char *)"moetop", (char *)"-hf", p->repo, (char *)"--fetch", NULL};
    posix_spawn_file_actions_t files;
    int out[2], err[2], rc;

    if (pipe2(out, O_CLOEXEC) < 0)
        return -1;
    if (pipe2(err, O_CLOEXEC) < 0) {
        close(out[0]);
        close(out[1]);
        return -1;
    }
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out[1], 1);
    posix_spawn_file_actions_adddup2(&files, err[1], 2);
    rc = posix_spawn(&p->child, "/proc/self/exe", &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    close(out[1]);
    close(err[1]);
    p->fds[0] = out[0];
    p->fds[1] = err[0];
    return rc ? -1 : 0;
}

/* Its exit status. */
static int reap(struct pull *p)
{
    int status = 0;

    while (waitpid(p->child, &status, 0) < 0 && errno == EINTR)
        ;
    for (int i = 0; i < 2; i++)
        if (p->fds[i] >= 0)
            close(p->fds[i]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- what it says ---- */

/* Takes o. */
static void say(struct pull *p, json_t *o)
{
    char *text = p->stream && o ? json_dumps(o, JSON_COMPACT) : NULL;

    json_decref(o);
    if (!text)
        return;
    reply_stream_put(p->x, text, strlen(text));
    reply_stream_put(p->x, "\n", 1);
    free(text); /* allocated by jansson */
}

static void read_line(struct pull *p, const char *line)
{
    unsigned long long done, total;

    if (sscanf(line, "moetop: fetching %llu of %llu bytes", &done, &total) == 2)
        say(p, json_pack("{s:s, s:s, s:I, s:I}", "status", "pulling model", "digest", p->repo,
                         "total", (json_int_t)total, "completed", (json_int_t)done));
    else
        snprintf(p->problem, sizeof p->problem, "%s",
                 strncmp(line, "moetop: ", 8) == 0 ? line + 8 : line);
}

static void read_lines(struct pull *p)
{
    struct strbuf *b = &p->text[1];
    char *end;

    while (b->len && (end = memchr(b->data, '\n', b->len))) {
        *end = 0;
        read_line(p, b->data);
        b->len -= (size_t)(end + 1 - b->data);
        memmove(b->data, end + 1, b->len);
    }
    if (b->len > LINE_MOST)
        strbuf_clear(b);
}

/* false: both are closed. */
static bool read_child(struct pull *p)
{
    struct pollfd fds[2] = {{.fd = p->fds[0], .events = POLLIN},
                            {.fd = p->fds[1], .events = POLLIN}};

    poll(fds, 2, LOOK_MS);
    for (int i = 0; i < 2; i++) {
        char piece[1024];
        ssize_t n = fds[i].revents ? read(p->fds[i], piece, sizeof piece) : -1;

        if (n > 0)
            strbuf_put(&p->text[i], piece, (size_t)n);
        else if (fds[i].revents) {
            close(p->fds[i]);
            p->fds[i] = -1;
        }
    }
    read_lines(p);
    return p->fds[0] >= 0 || p->fds[1] >= 0;
}

/* ---- together ---- */

/* The model is there: names it. */
static void add_model(struct pull *p)
{
    struct strbuf *path = &p->text[0];

    while (path->len && path->data[path->len - 1] == '\n')
        path->data[--path->len] = 0;
    if (path->len)
        registry_add(p->x->server->registry, strbuf_text(path), p->name);
    server_say(p->x->server, "pulled %s", p->name);
}

static void finish(struct pull *p, int status)
{
    struct refusal why;

    if (status == 0) {
        say(p, json_pack("{s:s}", "status", "verifying sha256 digest"));
        add_model(p);
        if (p->stream) {
            say(p, json_pack("{s:s}", "status", "success"));
            reply_stream_end(p->x, false);
        } else {
            reply_json(p->x, 200, json_pack("{s:s}", "status", "success"));
        }
        return;
    }
    refuse(&why, 500, "not_pulled", NULL, "%s",
           p->problem[0] ? p->problem : "the download ended without saying why");
    reply_refusal(p->x, &why);
}

static void *work(void *arg)
{
    struct pull *p = arg;
    int status = -1;

    if (p->stream)
        reply_stream_begin(p->x, true);
    say(p, json_pack("{s:s}", "status", "pulling manifest"));
    if (spawn(p) == 0) {
        while (read_child(p))
            if (exchange_gone(p->x) || atomic_load(&p->x->server->draining))
                kill(p->child, SIGTERM); /* the part that came is kept */
        status = reap(p);
    }
    finish(p, status);
    strbuf_release(&p->text[0]);
    strbuf_release(&p->text[1]);
    exchange_drop(p->x);
    mem_free(p);
    atomic_fetch_sub(&running, 1);
    return NULL;
}

void ollama_pulls_end(void)
{
    while (atomic_load(&running))
        clock_sleep(10 * CLOCK_MILLI);
}

/* "hf.co/USER/REPO:QUANT", as Ollama names models of the Hub. */
static int read_name(struct pull *p, const json_t *body, struct refusal *r)
{
    static const char *const hosts[] = {"https://", "hf.co/", "huggingface.co/"};
    const char *name = json_string_value(field_get(body, "model"));

    if (!name)
        name = json_string_value(field_get(body, "name")); /* earlier versions' */
    if (!name || strlen(name) >= sizeof p->name)
        return refuse(r, 400, "missing_required_parameter", "model", "'model' is missing");
    snprintf(p->name, sizeof p->name, "%s", name);
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (strncmp(name, hosts[i], strlen(hosts[i])) == 0)
            name += strlen(hosts[i]);
    if (!strchr(name, '/') || name[0] == '-')
        return refuse(
            r, 400, "invalid_value", "model",
            "'%.100s' is of Ollama's own library; models are pulled from the Hugging Face "
            "Hub: hf.co/USER/REPO:QUANT",
            p->name);
    snprintf(p->repo, sizeof p->repo, "%s", name);
    return 0;
}

static int start(struct exchange *x, const json_t *body, struct refusal *r)
{
    struct pull *p = mem_alloc(1, sizeof *p);
    pthread_t thread;

    if (!p)
        return refuse(r, 503, "out_of_memory", NULL, "out of memory for the request");
    p->fds[0] = p->fds[1] = -1;
    p->stream = !json_is_false(field_get(body, "stream"));
    if (read_name(p, body, r) < 0) {
        mem_free(p);
        return -1;
    }
    if (atomic_fetch_add(&running, 1) >= PULLS_MOST) {
        refuse(r, 429, "queue_full", NULL, "%d models are being pulled: try again later",
               PULLS_MOST);
    } else {
        exchange_hold(x);
        p->x = x;
        if (pthread_create(&thread, NULL, work, p) == 0) {
            pthread_detach(thread);
            return 0;
        }
        exchange_drop(x);
        refuse(r, 503, "out_of_memory", NULL, "no thread for the request");
    }
    atomic_fetch_sub(&running, 1);
    mem_free(p);
    return -1;
}

void api_ollama_pull(struct exchange *x)
{
    struct refusal why = {0};
    json_t *body = request_json(x, &why);

    if (body && !x->server->allow_pull)
        refuse(&why, 403, "not_allowed", NULL,
               "models are pulled only by a server with --allow-pull; moetop -hf USER/REPO:QUANT "
               "--fetch does it here");
    if (!body || why.status || start(x, body, &why) < 0)
        reply_refusal(x, &why);
    json_decref(body);
}
