/* See transfer.h. After a disconnect the download is retried with growing pauses, as long as there
 * is progress; the hash is updated while downloading, and a partial file from an earlier run is
 * hashed once at the start. */
#include "app/fetch/transfer.h"

#include "app/common/signals.h"
#include "app/common/web.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES 5
#define WAIT (100 * CLOCK_MILLI)

/* A file being downloaded. */
struct coming {
    struct transfers *all;
    const struct transfer *t;
    CURL *curl;
    struct digest digest;
    uint64_t have; /* bytes in the file and in the digest */
    int fd, why;   /* why: errno of a write that failed */
    uint64_t most; /* … maximum reached: more is progress, also on a server without ranges */
    bool longer;   /* the server sent more than the listed size */
    /* the server does not say which range it sends (206 without Content-Range): assumes the
     * requested one, to be verified by the file's hash */
    bool unsaid;
    bool fresh; /* no data of this response has arrived yet */
};

static bool stopped(void *ctx)
{
    (void)ctx;
    return signals_last() != 0;
}

static int on_tick(void *ctx, curl_off_t total, curl_off_t now, curl_off_t up, curl_off_t sent)
{
    (void)total, (void)now, (void)up, (void)sent;
    return stopped(ctx);
}

static int cancelled(struct error *e)
{
    return error_set(e, ERR_CANCELLED,
                     "the download was stopped; the same command goes on with it");
}

int transfer_refused(long status, const char *what, bool with_token, struct error *e)
{
    switch (status) {
    case 401:
        return error_set(e, ERR_MODEL,
                         "%s: not there, or not for everybody (HTTP 401): check the name; for a "
                         "gated or private model %s",
                         what,
                         with_token
                             ? "the token in HF_TOKEN is not accepted"
                             : "accept its terms on its page and put your token into HF_TOKEN");
    case 403:
        return error_set(e, ERR_MODEL,
                         "%s: not allowed (HTTP 403): accept the model's terms on its page%s", what,
                         with_token ? ", and see what your token may read"
                                    : ", and put your token into HF_TOKEN");
    case 404: return error_set(e, ERR_MODEL, "%s: there is no such thing (HTTP 404)", what);
    case 429:
        return error_set(e, ERR_IO, "%s: too many requests (HTTP 429): try again later%s", what,
                         with_token ? "" : ", or with a token in HF_TOKEN");
    default:
        return error_set(e, ERR_IO, "%s: the server answers HTTP %ld: try again later", what,
                         status);
    }
}

static bool worth_another(long status)
{
    return status == 408 || status == 429 || status >= 500;
}

/* A handle for the Hub. The token is sent only to its own host, not to the target of a redirection.
 */
static CURL *open_handle(const struct transfers *all, const char *url, char *detail,
                         struct curl_slist **headers, struct error *e)
{
    CURL *c = web_handle();
    char bearer[1100];

    *headers = NULL;
    if (!c) {
        error_set(e, ERR_MEMORY, "out of memory for a download");
        return NULL;
    }
    web.curl_easy_setopt(c, CURLOPT_URL, url);
    web.curl_easy_setopt(c, CURLOPT_ERRORBUFFER, detail);
    web.curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    web.curl_easy_setopt(c, CURLOPT_MAXREDIRS, 10L);
    /* a minute without data is a disconnect */
    web.curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    web.curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, 60L);
    web.curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    web.curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_tick);
    if (all->token) {
        snprintf(bearer, sizeof bearer, "Bearer %s", all->token);
        if (web_header(headers, "Authorization", bearer, e) < 0) {
            web.curl_easy_cleanup(c);
            return NULL;
        }
        web.curl_easy_setopt(c, CURLOPT_HTTPHEADER, *headers);
    }
    return c;
}

/* ---- texts ---- */

static size_t take_text(char *data, size_t one, size_t n, void *ctx)
{
    struct strbuf *text = ctx;

    (void)one;
    strbuf_put(text, data, n);
    return text->failed ? 0 : n;
}

int transfer_text(struct transfers *all, const char *url, size_t most, long *status,
                  struct strbuf *text, struct error *e)
{
    char detail[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers;
    CURLcode code = CURLE_OK;
    curl_off_t after = 0;
    int rc = web_open(e);
    CURL *c;

    if (rc < 0)
        return rc;
    if (!(c = open_handle(all, url, detail, &headers, e)))
        return e ? e->code : ERR_MEMORY;
    text->limit = most;
    web.curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_text);
    web.curl_easy_setopt(c, CURLOPT_WRITEDATA, text);
    for (int tries = 1; tries <= TRIES; tries++) {
        strbuf_clear(text);
        code = web.curl_easy_perform(c);
        web.curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, status);
        web.curl_easy_getinfo(c, CURLINFO_RETRY_AFTER, &after);
        /* an unknown host name will not be known a second later */
        if (stopped(NULL) || code == CURLE_COULDNT_RESOLVE_HOST ||
            (code == CURLE_OK && !worth_another(*status)) || text->failed)
            break;
        if (code == CURLE_COULDNT_CONNECT && tries == 2)
            break;
        if (tries < TRIES && web_back_off(tries, (long)after, stopped, NULL))
            break;
    }
    if (stopped(NULL))
        rc = cancelled(e);
    else if (text->failed)
        rc = error_set(e, ERR_IO, "%s: more than %zu bytes came", url, most);
    else if (code != CURLE_OK)
        rc = error_set(e, ERR_IO, "%s: %s", url, web_failure(code, detail));
    web.curl_slist_free_all(headers);
    web.curl_easy_cleanup(c);
    return rc;
}

/* ---- files ---- */

static void show(struct coming *f)
{
    struct transfers *all = f->all;
    uint64_t done = all->done + f->have, ns = clock_now() - all->bar.begun;
    char note[80], rate[20], total[20];

    size_format((uint64_t)clock_rate((double)done - all->bar.already, ns), rate, sizeof rate);
    size_format(all->total, total, sizeof total);
    snprintf(note, sizeof note, "%8s/s of %-8s", rate, total);
    progress_draw(&all->bar, (double)done, (double)all->total, note);
}

static void forget(struct coming *f)
{
    digest_release(&f->digest);
    digest_init(&f->digest, f->t->kind, f->t->bytes);
    f->have = 0;
}

/* If a server does not say whether it supports ranges, its response shows it: otherwise it sends
 * the whole file. */
static int begin_whole(struct coming *f)
{
    if (ftruncate(f->fd, 0) < 0 || lseek(f->fd, 0, SEEK_SET) < 0)
        return -1;
    forget(f);
    return 0;
}

static size_t take_file(char *data, size_t one, size_t n, void *ctx)
{
    struct coming *f = ctx;
    long status = 0;

    (void)one;
    web.curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 && status != 206)
        return n; /* the body of an error page */
    if (f->fresh && f->unsaid && status == 200 && begin_whole(f) < 0) {
        f->why = errno;
        return 0;
    }
    f->fresh = false;
    if (f->have + n > f->t->bytes) {
        f->longer = true;
        return 0;
    }
    if (file_write_all(f->fd, data, n) < 0) {
        f->why = errno;
        return 0;
    }
    digest_add(&f->digest, data, n);
    f->have += n;
    show(f);
    return n;
}

/* Hashes the partial file of an earlier run; if larger than expected it is discarded. */
static int take_up(struct coming *f, struct error *e)
{
    size_t room = 1 << 20;
    char *data = mem_alloc(room, 1);
    ssize_t n = 0;
    struct stat st;

    if (!data)
        return error_set(e, ERR_MEMORY, "out of memory for a download");
    if (fstat(f->fd, &st) == 0 && (uint64_t)st.st_size > f->t->bytes && ftruncate(f->fd, 0) < 0)
        st.st_size = 0;
    lseek(f->fd, 0, SEEK_SET);
    forget(f);
    while (!stopped(NULL) && (n = read(f->fd, data, room)) > 0) {
        digest_add(&f->digest, data, (size_t)n);
        f->have += (uint64_t)n;
    }
    mem_free(data);
    f->most = f->have;
    f->all->bar.already += (double)f->have;
    return stopped(NULL) ? cancelled(e)
           : n < 0       ? error_set(e, ERR_IO, "%s: %s", f->t->part, strerror(errno))
                         : 0;
}

/* 0: complete; 1: retry, 2: nothing new arrived; else an error. */
static int one_try(struct coming *f, const char *detail, long *after, struct error *e)
{
    char had[20], all[20], range[32];
    curl_off_t wait = 0;
    CURLcode code;
    long status = 0;

    if (f->have == f->t->bytes)
        return 0;
    f->fresh = true;
    snprintf(range, sizeof range, "%" PRIu64 "-", f->have);
    /* libcurl resumes only if the server confirms the position */
    web.curl_easy_setopt(f->curl, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)(f->unsaid ? 0 : f->have));
    web.curl_easy_setopt(f->curl, CURLOPT_RANGE, f->unsaid && f->have ? range : NULL);
    code = web.curl_easy_perform(f->curl);
    web.curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
    web.curl_easy_getinfo(f->curl, CURLINFO_RETRY_AFTER, &wait);
    *after = (long)wait;
    if (stopped(NULL))
        return cancelled(e);
    if (f->why)
        return error_set(e, ERR_IO, "%s: %s%s", f->t->part, strerror(f->why),
                         f->why == ENOSPC || f->why == EDQUOT
                             ? ": make room, then the same command goes on with it"
                             : "");
    if (f->longer) { /* it is unknown which of it is right */
        unlink(f->t->part);
        return error_set(e, ERR_IO,
                         "%s: more came than the %" PRIu64 " bytes it should have; it was removed: "
                         "fetch it again",
                         f->t->name, f->t->bytes);
    }
    if (code == CURLE_RANGE_ERROR && status == 206 && !f->unsaid) {
        f->unsaid = true;
        return 2;
    }
    /* a server that cannot resume there answers 416, or libcurl reports that the range was ignored
     */
    if (status == 416 || code == CURLE_RANGE_ERROR) {
        if (!f->have || ftruncate(f->fd, 0) < 0)
            return transfer_refused(status, f->t->name, f->all->token, e);
        lseek(f->fd, 0, SEEK_SET);
        forget(f);
        return 2;
    }
    if (status >= 400 && !worth_another(status))
        return transfer_refused(status, f->t->name, f->all->token, e);
    if (f->have == f->t->bytes)
        return 0;
    if (status >= 400)
        transfer_refused(status, f->t->name, f->all->token, e);
    else
        error_set(e, ERR_IO, "%s: %s at %s of %s; the same command goes on with it", f->t->name,
                  code == CURLE_OK ? "the file ended" : web_failure(code, detail),
                  size_format(f->have, had, sizeof had), size_format(f->t->bytes, all, sizeof all));
    return f->have > f->most ? 1 : 2;
}

static int all_tries(struct coming *f, const char *detail, struct error *e)
{
    long after = 0;
    int rc, tries = 0;

    while ((rc = one_try(f, detail, &after, e)) > 0) {
        tries = rc == 1 ? 1 : tries + 1;
        f->most = f->have > f->most ? f->have : f->most;
        if (tries >= TRIES)
            return ERR_IO;
        if (web_back_off(tries, after, stopped, NULL))
            return cancelled(e);
    }
    if (rc == 0 && e)
        *e = (struct error){0};
    return rc;
}

/* If the hash is right, renames the file. Otherwise deletes it: it could not be resumed. */
static int finish(struct coming *f, struct error *e)
{
    char hash[DIGEST_HEX];

    digest_end(&f->digest, hash);
    if (!*hash)
        return digest_failed(f->t->name, e);
    if (strcmp(hash, f->t->hash)) {
        unlink(f->t->part);
        return error_set(e, ERR_IO,
                         "%s: damaged on the way: its hash is %s, not %s; it was removed: fetch it "
                         "again",
                         f->t->name, hash, f->t->hash);
    }
    if (fsync(f->fd) < 0 || rename(f->t->part, f->t->whole) < 0)
        return error_set(e, ERR_IO, "%s: %s", f->t->whole, strerror(errno));
    return 0;
}

/* The locked lock file, >= 0; waits while another program holds it. */
static int lock(struct transfers *all, const struct transfer *t, struct error *e)
{
    int fd = open(t->lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bool told = false;

    if (fd < 0)
        return error_set(e, ERR_IO, "%s: %s", t->lock, strerror(errno));
    while (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        if (!told) {
            progress_end(&all->bar);
            fprintf(stderr, "moetop: %s: another program is fetching it: waiting for that one\n",
                    t->name);
        }
        told = true;
        if (stopped(NULL)) {
            close(fd);
            return cancelled(e);
        }
        clock_sleep(WAIT);
    }
    return fd; /* on a file system without locks there is nothing to wait for */
}

static bool is_whole(const struct transfer *t)
{
    struct stat st;

    return stat(t->whole, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == t->bytes;
}

int transfer_file(struct transfers *all, const struct transfer *t, struct error *e)
{
    char detail[CURL_ERROR_SIZE] = "";
    struct coming f = {.all = all, .t = t, .fd = -1};
    struct curl_slist *headers = NULL;
    int rc = web_open(e), held;

    if (rc < 0 || (held = lock(all, t, e)) < 0)
        return rc < 0 ? rc : held;
    if (is_whole(t)) /* another program has downloaded it */
        goto out;
    if ((f.fd = open(t->part, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) < 0) {
        rc = error_set(e, ERR_IO, "%s: %s", t->part, strerror(errno));
        goto out;
    }
    if (!(f.curl = open_handle(all, t->url, detail, &headers, e))) {
        rc = e ? e->code : ERR_MEMORY;
        goto out;
    }
    web.curl_easy_setopt(f.curl, CURLOPT_WRITEFUNCTION, take_file);
    web.curl_easy_setopt(f.curl, CURLOPT_WRITEDATA, &f);
    if ((rc = take_up(&f, e)) == 0 && (rc = all_tries(&f, detail, e)) == 0)
        rc = finish(&f, e);
out:
    if (rc == 0)
        all->done += t->bytes;
    digest_release(&f.digest);
    web.curl_slist_free_all(headers);
    web.curl_easy_cleanup(f.curl);
    if (f.fd >= 0)
        close(f.fd);
    close(held);
    return rc;
}
