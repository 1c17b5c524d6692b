/* See http.h. libcurl's multi interface waits in steps of 50 ms, so that a cancel, which is a flag,
 * is seen at once. */
#include "app/connect/http.h"

#include "app/common/web.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define WAIT_MS 50
#define TEXT_MOST (16u << 20)
#define SILENCE_SECONDS 600L

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

static bool names_host(const char *url)
{
    const char *host = strstr(url, "://") + 3;

    return isalnum((unsigned char)*host) || *host == '[';
}

int http_server_init(struct http_server *s, const char *url, const char *key_file, struct error *e)
{
    bool bare = strstr(url, "://") == NULL;
    int n = snprintf(s->base, sizeof s->base, "%s%s", bare ? "http://" : "", url);

    s->key[0] = 0;
    if (n < 0 || n >= (int)sizeof s->base ||
        (strncmp(s->base, "http://", 7) && strncmp(s->base, "https://", 8)) ||
        strpbrk(s->base, " \t\r\n?#") || !names_host(s->base))
        return error_set(e, ERR_USAGE,
                         "--connect %s: give it as http://HOST:PORT, such as http://127.0.0.1:8080",
                         url);
    while (n && s->base[n - 1] == '/')
        s->base[--n] = 0;
    if (n > 3 && strcmp(s->base + n - 3, "/v1") == 0)
        s->base[n - 3] = 0;
    return key_file ? read_key(s, key_file, e) : 0;
}

/* ---- a call ---- */

struct flight {
    struct http_call *call;
    CURL *curl;
    bool taken; /* take() ended it */
};

static size_t on_body(char *bytes, size_t one, size_t n, void *ctx)
{
    struct flight *f = ctx;
    struct http_call *c = f->call;
    const char *type = NULL;

    (void)one;
    curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &c->status);
    curl_easy_getinfo(f->curl, CURLINFO_CONTENT_TYPE, &type);
    c->events = type && strncasecmp(type, "text/event-stream", 17) == 0;
    if (c->take && c->status == 200 && c->events) {
        f->taken = c->take(c->ctx, bytes, n) != 0;
        return f->taken ? 0 : n;
    }
    strbuf_put(&c->text, bytes, n);
    return c->text.failed ? 0 : n;
}

static int set_up(const struct http_server *s, struct http_call *c, struct flight *f,
                  struct curl_slist **headers, char *detail, struct error *e)
{
    char url[sizeof s->base + 200], bearer[sizeof s->key + 20];
    int rc = 0;

    snprintf(url, sizeof url, "%s%s", s->base, c->path);
    curl_easy_setopt(f->curl, CURLOPT_URL, url);
    curl_easy_setopt(f->curl, CURLOPT_ERRORBUFFER, detail);
    curl_easy_setopt(f->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(f->curl, CURLOPT_WRITEDATA, f);
    curl_easy_setopt(f->curl, CURLOPT_CONNECTTIMEOUT, 10L);
    if (c->seconds) {
        curl_easy_setopt(f->curl, CURLOPT_TIMEOUT, c->seconds);
    } else {
        curl_easy_setopt(f->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(f->curl, CURLOPT_LOW_SPEED_TIME, SILENCE_SECONDS);
    }
    if (*s->key) {
        snprintf(bearer, sizeof bearer, "Bearer %s", s->key);
        rc = web_header(headers, "Authorization", bearer, e);
    }
    if (rc == 0 && c->body) {
        curl_easy_setopt(f->curl, CURLOPT_POSTFIELDS, c->body);
        curl_easy_setopt(f->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(c->body));
        rc = web_header(headers, "Content-Type", "application/json", e);
        if (rc == 0) /* no wait for "100 Continue" */
            rc = web_header(headers, "Expect", "", e);
    }
    curl_easy_setopt(f->curl, CURLOPT_HTTPHEADER, *headers);
    return rc;
}

/* 0: it is over, *code says how; ERR_CANCELLED. */
static int fly(CURLM *multi, struct http_call *c, CURLcode *code, struct error *e)
{
    int running = 1, left;
    CURLMsg *m;

    while (running) {
        if (c->stop && c->stop(c->ctx))
            return error_set(e, ERR_CANCELLED, "interrupted");
        if (curl_multi_perform(multi, &running) != CURLM_OK ||
            (running && curl_multi_poll(multi, NULL, 0, WAIT_MS, NULL) != CURLM_OK))
            return error_set(e, ERR_IO, "the request failed");
    }
    while ((m = curl_multi_info_read(multi, &left)))
        if (m->msg == CURLMSG_DONE)
            *code = m->data.result;
    return 0;
}

int http_perform(const struct http_server *s, struct http_call *c, struct error *e)
{
    char detail[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    struct flight f = {.call = c, .curl = web_handle()};
    CURLM *multi = curl_multi_init();
    CURLcode code = CURLE_FAILED_INIT;
    curl_off_t after = 0;
    int rc;

    c->status = 0;
    strbuf_clear(&c->text);
    c->text.limit = TEXT_MOST;
    if (!f.curl || !multi) {
        rc = error_set(e, ERR_MEMORY, "out of memory for a request");
        goto out;
    }
    if ((rc = set_up(s, c, &f, &headers, detail, e)) < 0)
        goto out;
    curl_multi_add_handle(multi, f.curl);
    rc = fly(multi, c, &code, e);
    curl_easy_getinfo(f.curl, CURLINFO_RESPONSE_CODE, &c->status);
    curl_easy_getinfo(f.curl, CURLINFO_RETRY_AFTER, &after);
    c->retry_after = (long)after;
    if (rc == 0 && code != CURLE_OK && !f.taken)
        rc = c->text.failed ? error_set(e, ERR_IO, "the answer is larger than 16 MiB")
                            : error_set(e, ERR_IO, "%s", web_failure(code, detail));
    curl_multi_remove_handle(multi, f.curl);
out:
    curl_multi_cleanup(multi);
    curl_easy_cleanup(f.curl);
    curl_slist_free_all(headers);
    return rc;
}

/* ---- refusals ---- */

bool http_error_text(const char *body, size_t n, char *out, size_t size)
{
    json_t *root = n ? json_loadb(body, n, JSON_ALLOW_NUL, NULL) : NULL;
    const json_t *error = json_object_get(root, "error");
    const char *text = json_string_value(json_object_get(error, "message"));

    if (!text)
        text = json_string_value(error);
    if (!text)
        text = json_string_value(json_object_get(root, "message"));
    if (!text)
        text = json_string_value(json_object_get(root, "detail"));
    if (text)
        snprintf(out, size, "%s", text);
    json_decref(root);
    return text != NULL;
}

int http_refused(const struct http_server *s, const struct http_call *c, struct error *e)
{
    char own[300] = "";
    bool said = http_error_text(c->text.data ? c->text.data : "", c->text.len, own, sizeof own);
    int code = c->status == 404                       ? ERR_MODEL
               : c->status >= 500 || c->status == 429 ? ERR_IO
                                                      : ERR_INPUT;

    if (c->status == 401 || c->status == 403)
        return error_set(e, ERR_USAGE, "%s refuses (HTTP %ld)%s%s: %s", s->base, c->status,
                         said ? ": " : "", own,
                         *s->key ? "the key in --api-key-file is not accepted"
                                 : "give its key with --api-key-file");
    if (c->status == 400 && strstr(own, "context"))
        code = ERR_CONTEXT;
    return error_set(e, code, "%s answers HTTP %ld%s%s", s->base, c->status, said ? ": " : "", own);
}
