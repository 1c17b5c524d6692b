/* See http.h. libcurl's multi interface waits in steps of 50 ms, so that a cancel flag is noticed
 * at once. */
#include "app/connect/http.h"

#include "app/common/web.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define WAIT_MS 50
#define TEXT_MOST (16u << 20)

/* ---- the address ---- */

static int read_key(struct http_server *s, const char *path, struct error *e)
{
    static const struct file_kind kind = {"file of keys", 1 << 20, ERR_USAGE};
    char *text = NULL;
    size_t n;
    int rc = file_read(path, &kind, &text, &n, e);

    if (rc < 0)
        return error_prefix(e, "--api-key-file");
    for (char *at = text; *at && !*s->key;) {
        size_t len = strcspn(at, "\n"), end = len, from = 0;

        while (from < end && isspace((unsigned char)at[from]))
            from++;
        while (end > from && isspace((unsigned char)at[end - 1]))
            end--;
        if (end > from && at[from] != '#' && end - from < sizeof s->key)
            snprintf(s->key, sizeof s->key, "%.*s", (int)(end - from), at + from);
        at += len + (at[len] != 0);
    }
    mem_free(text);
    if (!*s->key)
        return error_set(e, ERR_USAGE, "--api-key-file %s: there is no key in it", path);
    for (const char *p = s->key; *p; p++)
        if (*p <= ' ' || *p > '~')
            return error_set(e, ERR_USAGE, "--api-key-file %s: its first key is none", path);
    return 0;
}

static bool names_host(const char *host)
{
    return isalnum((unsigned char)*host) || *host == '[';
}

/* Validates an address with libcurl. */
static bool is_url(const char *url)
{
    CURLU *u = web.curl_url();
    bool good = u && web.curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK;

    web.curl_url_cleanup(u);
    return good;
}

/* Moves user and password in front of the host from base to login. */
static bool take_login(struct http_server *s)
{
    char *host = strstr(s->base, "://") + 3, *at = memrchr(host, '@', strcspn(host, "/"));
    size_t n = at ? (size_t)(at + 1 - host) : 0;

    if (n >= sizeof s->login)
        return false;
    memcpy(s->login, host, n);
    s->login[n] = 0;
    memmove(host, host + n, strlen(host + n) + 1);
    return names_host(host) && is_url(s->base);
}

int http_server_init(struct http_server *s, const char *url, const char *key_file, struct error *e)
{
    bool bare = strstr(url, "://") == NULL;
    int n = snprintf(s->base, sizeof s->base, "%s%s", bare ? "http://" : "", url);

    s->key[0] = s->login[0] = 0;
    s->silence = HTTP_SILENCE;
    if (web_open(e) < 0)
        return ERR_DEVICE;
    if (n < 0 || n >= (int)sizeof s->base ||
        (strncasecmp(s->base, "http://", 7) && strncasecmp(s->base, "https://", 8)) ||
        strpbrk(s->base, " \t\r\n?#") || !take_login(s))
        return error_set(e, ERR_USAGE,
                         "--connect %s: give it as http://HOST:PORT, such as http://127.0.0.1:8080",
                         strchr(url, '@') ? "(an address with a login)" : url);
    n = (int)strlen(s->base);
    while (n && s->base[n - 1] == '/')
        s->base[--n] = 0;
    if ((n = (int)path_stem(s->base, "/v1")))
        s->base[n] = 0;
    return key_file ? read_key(s, key_file, e) : 0;
}

/* ---- a call ---- */

struct flight {
    struct http_call *call;
    CURL *curl;
    uint64_t heard_ns; /* when something arrived */
    bool silent;       /* nothing did for too long */
    bool begun;        /* part of the body arrived */
    bool taken;        /* ended by take() */
};

static size_t on_body(char *bytes, size_t one, size_t n, void *ctx)
{
    struct flight *f = ctx;
    struct http_call *c = f->call;
    const char *type = NULL;

    (void)one;
    f->heard_ns = clock_now();
    web.curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &c->status);
    if (!f->begun) {
        f->begun = true;
        web.curl_easy_getinfo(f->curl, CURLINFO_CONTENT_TYPE, &type);
        snprintf(c->type, sizeof c->type, "%.*s", type ? (int)strcspn(type, "; \t") : 0,
                 type ? type : "");
        c->events = strcasecmp(c->type, "text/event-stream") == 0 ||
                    (n >= 5 && memcmp(bytes, "data:", 5) == 0);
    }
    if (c->take && c->status == 200 && c->events) {
        f->taken = c->take(c->ctx, bytes, n) != 0;
        return f->taken ? 0 : n;
    }
    strbuf_put(&c->text, bytes, n);
    return c->text.failed ? 0 : n;
}

/* host: pointer into the address. */
static bool is_loopback(const char *host)
{
    static const char *const names[] = {"localhost", "127.", "[::1]"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);

        if (strncasecmp(host, names[i], n) == 0 &&
            (names[i][n - 1] == '.' ? strspn(host, "0123456789.") == strcspn(host, ":/")
                                    : !host[n] || strchr(":/", host[n])))
            return true;
    }
    return false;
}

/* The target of a redirection, without the requested path. */
static void take_elsewhere(struct http_call *c, CURL *curl)
{
    const char *url = NULL;
    size_t n, path = strlen(c->path);

    if (web.curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &url) != CURLE_OK || !url)
        return;
    n = strlen(url);
    if (n > path && strcmp(url + n - path, c->path) == 0)
        n -= path;
    snprintf(c->elsewhere, sizeof c->elsewhere, "%.*s", (int)(n < 399 ? n : 399), url);
}

static int set_up(const struct http_server *s, struct http_call *c, struct flight *f,
                  struct curl_slist **headers, char *detail, struct error *e)
{
    char url[sizeof s->base + sizeof s->login + 200], bearer[sizeof s->key + 20];
    int host = (int)(strstr(s->base, "://") + 3 - s->base), rc = 0;

    snprintf(url, sizeof url, "%.*s%s%s%s", host, s->base, s->login, s->base + host, c->path);
    web.curl_easy_setopt(f->curl, CURLOPT_URL, url);
    /* requests to this machine never go through a proxy */
    if (is_loopback(s->base + host))
        web.curl_easy_setopt(f->curl, CURLOPT_PROXY, "");
    /* compression is not requested, but unpacked if sent */
    web.curl_easy_setopt(f->curl, CURLOPT_ACCEPT_ENCODING, "identity");
    web.curl_easy_setopt(f->curl, CURLOPT_ERRORBUFFER, detail);
    web.curl_easy_setopt(f->curl, CURLOPT_WRITEFUNCTION, on_body);
    web.curl_easy_setopt(f->curl, CURLOPT_WRITEDATA, f);
    web.curl_easy_setopt(f->curl, CURLOPT_CONNECTTIMEOUT, 10L);
    if (c->seconds)
        web.curl_easy_setopt(f->curl, CURLOPT_TIMEOUT, c->seconds);
    if (*s->key) {
        snprintf(bearer, sizeof bearer, "Bearer %s", s->key);
        rc = web_header(headers, "Authorization", bearer, e);
    }
    if (rc == 0 && c->body) {
        web.curl_easy_setopt(f->curl, CURLOPT_POSTFIELDS, c->body);
        web.curl_easy_setopt(f->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(c->body));
        rc = web_header(headers, "Content-Type", "application/json", e);
        if (rc == 0) /* no wait for "100 Continue" */
            rc = web_header(headers, "Expect", "", e);
    }
    web.curl_easy_setopt(f->curl, CURLOPT_HTTPHEADER, *headers);
    return rc;
}

/* libcurl's own limit of speed is a mean over seconds. */
static bool is_silent(const struct http_server *s, const struct flight *f)
{
    return !f->call->seconds && clock_now() - f->heard_ns > (uint64_t)s->silence * CLOCK_SECOND;
}

/* 0: finished, with the result in *code; ERR_CANCELLED. */
static int fly(const struct http_server *s, CURLM *multi, struct flight *f, CURLcode *code,
               struct error *e)
{
    const struct http_call *c = f->call;
    int running = 1, left;
    CURLMsg *m;

    f->heard_ns = clock_now();
    while (running) {
        if (c->stop && c->stop(c->ctx))
            return error_set(e, ERR_CANCELLED, "interrupted");
        if (web.curl_multi_perform(multi, &running) != CURLM_OK ||
            (running && web.curl_multi_poll(multi, NULL, 0, WAIT_MS, NULL) != CURLM_OK))
            return error_set(e, ERR_IO, "the request failed");
        if (running && is_silent(s, f)) {
            f->silent = true;
            *code = CURLE_OPERATION_TIMEDOUT;
            return 0;
        }
    }
    while ((m = web.curl_multi_info_read(multi, &left)))
        if (m->msg == CURLMSG_DONE)
            *code = m->data.result;
    return 0;
}

static int failed(const struct http_server *s, const struct flight *f, CURLcode code,
                  const char *detail, struct error *e)
{
    if (f->call->text.failed)
        return error_set(e, ERR_IO, "the answer is larger than 16 MiB");
    if (f->silent)
        return error_set(e, ERR_IO, "nothing came for %ld s", s->silence);
    return error_set(e, ERR_IO, "%s", web_failure(code, detail));
}

int http_perform(const struct http_server *s, struct http_call *c, struct error *e)
{
    char detail[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    struct flight f = {.call = c};
    CURLM *multi;
    CURLcode code = CURLE_FAILED_INIT;
    curl_off_t after = 0;
    int rc = web_open(e);

    c->status = 0;
    c->late = c->untrusted = c->events = false;
    c->type[0] = c->elsewhere[0] = 0;
    strbuf_clear(&c->text);
    c->text.limit = TEXT_MOST;
    if (rc < 0)
        return rc;
    f.curl = web_handle();
    multi = web.curl_multi_init();
    if (!f.curl || !multi) {
        rc = error_set(e, ERR_MEMORY, "out of memory for a request");
        goto out;
    }
    if ((rc = set_up(s, c, &f, &headers, detail, e)) < 0)
        goto out;
    web.curl_multi_add_handle(multi, f.curl);
    rc = fly(s, multi, &f, &code, e);
    web.curl_easy_getinfo(f.curl, CURLINFO_RESPONSE_CODE, &c->status);
    web.curl_easy_getinfo(f.curl, CURLINFO_RETRY_AFTER, &after);
    c->retry_after = (long)after;
    c->late = code == CURLE_OPERATION_TIMEDOUT && c->status == 0;
    c->untrusted = code == CURLE_PEER_FAILED_VERIFICATION;
    take_elsewhere(c, f.curl);
    if (rc == 0 && code != CURLE_OK && !f.taken)
        rc = failed(s, &f, code, detail, e);
    web.curl_multi_remove_handle(multi, f.curl);
out:
    web.curl_multi_cleanup(multi);
    web.curl_easy_cleanup(f.curl);
    web.curl_slist_free_all(headers);
    return rc;
}
