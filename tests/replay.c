/* See replay.h. A thread for each connection: the figures are polled while an answer comes. */
#include "tests/replay.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "tests/support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct replay replay;

static int listener = -1, port;
static pthread_t acceptor;

char *replay_recorded(const char *name, size_t *n)
{
    char path[200];
    FILE *f;
    char *text = calloc(1, 1 << 16);

    snprintf(path, sizeof path, "servers/%s/%s", replay.folder, name);
    f = fopen(support_path(path), "r");
    *n = f ? fread(text, 1, (1 << 16) - 1, f) : 0;
    if (f)
        fclose(f);
    return text;
}

static void say(int fd, const char *text, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);

        if (sent <= 0)
            return;
        text += sent;
        n -= (size_t)sent;
    }
}

static void reply(int fd, const char *status, const char *type, const char *text, size_t n)
{
    char head[300];

    snprintf(head, sizeof head,
             "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
             status, type, n);
    say(fd, head, strlen(head));
    say(fd, text, n);
}

static void reply_file(int fd, const char *name, const char *type)
{
    size_t n;
    char *text = replay_recorded(name, &n);

    if (n)
        reply(fd, "200 OK", type, text, n);
    else
        reply(fd, "404 Not Found", "application/json", "{}", 2);
    free(text);
}

/* The recorded stream, or what is left of it by the fault: its second half is missing. */
static void stream(int fd)
{
    static const char head[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    const struct linger at_once = {1, 0};
    size_t n;
    char *text = replay_recorded("chat.sse", &n), *half = text + n / 2,
         *event = strstr(half, "data: ");

    say(fd, head, sizeof head - 1);
    if (replay.fault == REPLAY_HALF_EVENT)
        n = (size_t)(event - text) + 40;
    else if (replay.fault == REPLAY_NO_LAST_LINE)
        n -= 2;
    else if (replay.fault != REPLAY_WELL)
        n = (size_t)(event - text);
    say(fd, text, n);
    if (replay.fault == REPLAY_RESET) {
        usleep(100000); /* what was sent has arrived */
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    if (replay.fault == REPLAY_SILENCE)
        sleep(6);
    free(text);
}

static void answer(int fd, const char *request)
{
    const char *body = strstr(request, "\r\n\r\n"), *when = "";

    if (strncmp(request, "POST ", 5) == 0) {
        snprintf(replay.said, sizeof replay.said, "%s", body ? body + 4 : "");
        replay.asked++;
        if (replay.refusals > 0) {
            replay.refusals--;
            say(fd, replay.refusal, strlen(replay.refusal));
        } else {
            stream(fd);
        }
    } else if (strncmp(request, "GET /v1/models ", 15) == 0 && replay.models) {
        reply(fd, "200 OK", "application/json", replay.models, strlen(replay.models));
    } else if (strncmp(request, "GET /v1/models ", 15) == 0) {
        reply_file(fd, "models.json", "application/json");
    } else if (strncmp(request, "GET /metrics ", 13) == 0 && replay.slashed) {
        say(fd, replay.slashed, strlen(replay.slashed));
    } else if (strncmp(request, "GET /metrics", 12) == 0) {
        when = replay.figures++ ? "metrics-later.txt" : "metrics.txt";
        reply_file(fd, when, "text/plain; version=0.0.4");
    } else if (strncmp(request, "GET /slots ", 11) == 0) {
        reply_file(fd, "slots.json", "application/json");
    } else {
        reply(fd, "404 Not Found", "application/json", "{}", 2);
    }
}

/* A body is as long as its length says. */
static bool is_whole(const char *request, size_t n)
{
    const char *body = strstr(request, "\r\n\r\n"), *length = strstr(request, "Content-Length: ");

    return body &&
           n >= (size_t)(body + 4 - request) + (length ? strtoul(length + 16, NULL, 10) : 0);
}

static void *serve(void *ctx)
{
    char *request = calloc(1, sizeof replay.said);
    int fd = (int)(intptr_t)ctx;
    size_t n = 0;
    ssize_t got = 1;

    while (got > 0 && !is_whole(request, n)) {
        got = recv(fd, request + n, sizeof replay.said - 1 - n, 0);
        n += got > 0 ? (size_t)got : 0;
    }
    if (is_whole(request, n))
        answer(fd, request);
    close(fd);
    free(request);
    return NULL;
}

static void *accept_all(void *ctx)
{
    int fd;

    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) == 0)
            pthread_detach(thread);
    }
    return NULL;
}

/* On the port of before, if there was one. */
void replay_start(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int on = 1;

    listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(listen(listener, 16), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    port = ntohs(at.sin_port);
    ck_assert_int_eq(pthread_create(&acceptor, NULL, accept_all, NULL), 0);
}

void replay_end(void)
{
    shutdown(listener, SHUT_RDWR);
    pthread_join(acceptor, NULL);
    close(listener);
    listener = -1;
}

void replay_set_up(void)
{
    memset(&replay, 0, sizeof replay);
    replay.folder = "vllm";
    port = 0;
    replay_start();
}

void replay_tear_down(void)
{
    if (listener >= 0)
        replay_end();
}

/* ---- a chat with it ---- */

struct remote *replay_chat;
struct strbuf replay_text, replay_thought, replay_notices;
int replay_error;
struct turn_done_event replay_done;

void replay_connect(const char *model)
{
    char url[64];
    const struct server_address at = {.url = url, .model = model, .silence = 2};

    snprintf(url, sizeof url, "127.0.0.1:%d/v1", port);
    ck_assert_int_eq(remote_start(&replay_chat, &at, NULL), 0);
}

void replay_disconnect(void)
{
    remote_stop(replay_chat);
    strbuf_release(&replay_text);
    strbuf_release(&replay_thought);
    strbuf_release(&replay_notices);
}

static void take(const struct event *ev)
{
    if (ev->kind == EVENT_TOKEN)
        strbuf_put(ev->token.part == PART_REASONING ? &replay_thought : &replay_text,
                   ev->token.text, ev->token.len);
    if (ev->kind == EVENT_TURN_DONE)
        replay_done = ev->done_turn;
    if (ev->kind == EVENT_ERROR)
        replay_error = ev->failure.code;
    if ((ev->kind == EVENT_ERROR || ev->kind == EVENT_NOTICE) && ev->text) {
        strbuf_puts(&replay_notices, ev->text);
        strbuf_putc(&replay_notices, '\n');
    }
}

void replay_await(enum event_kind kind, const char *words)
{
    uint64_t until = clock_now() + 60 * CLOCK_SECOND;

    for (bool met = false; !met;) {
        struct event ev;

        ck_assert_msg(clock_now() < until, "no event %d with %s; it said: %s", kind,
                      words ? words : "", strbuf_text(&replay_notices));
        if (remote_next_event(replay_chat, &ev) != 1) {
            usleep(2000);
            continue;
        }
        take(&ev);
        met = ev.kind == kind && (!words || (ev.text && strstr(ev.text, words)));
        event_release(&ev);
    }
}

void replay_ask(void)
{
    struct request request = {.path = "/v1/chat/completions"};
    struct error e = {0};

    request.body = mem_string("{\"model\": \"x\", \"messages\": [], \"stream\": true}");
    strbuf_clear(&replay_text);
    strbuf_clear(&replay_thought);
    strbuf_clear(&replay_notices);
    replay_error = 0;
    ck_assert_msg(remote_ask(replay_chat, &request, &e) == 0, "%s", e.text);
}
