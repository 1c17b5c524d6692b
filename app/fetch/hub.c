/* See hub.h. */
#include "app/fetch/hub.h"

#include "app/common/signals.h"
#include "app/fetch/hub_cache.h"
#include "app/fetch/hub_files.h"
#include "app/fetch/transfer.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/base/size.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LISTING_MOST (64u << 20)

struct download {
    struct hub_name name;
    struct hub_cache cache;
    struct hub_files files;
    struct transfers all;
    char endpoint[300], token[1000];
    bool lines; /* progress is told without a terminal too */
};

/* ---- the environment ---- */

static int find_endpoint(struct download *h, struct error *e)
{
    const char *given = hub_cache_variable("HF_ENDPOINT");
    size_t n;

    if (!given)
        given = "https://huggingface.co";
    if ((strncmp(given, "https://", 8) && strncmp(given, "http://", 7)) ||
        strpbrk(given, " \r\n?#") || strlen(given) >= sizeof h->endpoint)
        return error_set(e, ERR_USAGE, "HF_ENDPOINT %s: it must begin with https:// or http://",
                         given);
    n = (size_t)snprintf(h->endpoint, sizeof h->endpoint, "%s", given);
    while (n && h->endpoint[n - 1] == '/')
        h->endpoint[--n] = 0;
    return 0;
}

/* The file that `huggingface-cli login` writes. */
static char *saved_token(void)
{
    static const struct file_kind kind = {"token", 1000, ERR_USAGE};
    char path[PATH_MAX], *text = NULL;
    size_t n;

    if (hub_cache_variable("HF_TOKEN_PATH"))
        snprintf(path, sizeof path, "%s", hub_cache_variable("HF_TOKEN_PATH"));
    else if (hub_cache_variable("HF_HOME"))
        snprintf(path, sizeof path, "%s/token", hub_cache_variable("HF_HOME"));
    else if (hub_cache_variable("HOME"))
        snprintf(path, sizeof path, "%s/.cache/huggingface/token", hub_cache_variable("HOME"));
    else
        return NULL;
    return file_read(path, &kind, &text, &n, NULL) == 0 ? text : NULL;
}

static int find_token(struct download *h, struct error *e)
{
    char *saved = hub_cache_variable("HF_TOKEN") ? NULL : saved_token();
    const char *from = saved ? saved : hub_cache_variable("HF_TOKEN");
    size_t n;

    while (from && isspace((unsigned char)*from))
        from++;
    n = from ? strlen(from) : 0;
    while (n && isspace((unsigned char)from[n - 1]))
        n--;
    for (size_t i = 0; i < n; i++)
        if (from[i] <= ' ' || from[i] > '~' || n >= sizeof h->token) {
            mem_free(saved);
            return error_set(e, ERR_USAGE, "HF_TOKEN: that is no token");
        }
    snprintf(h->token, sizeof h->token, "%.*s", (int)n, from ? from : "");
    mem_free(saved);
    h->all.token = n ? h->token : NULL;
    return 0;
}

/* ---- the Hub's listing ---- */

/* 1: the Hub is unreachable, with *e. */
static int ask_listing(struct download *h, struct error *e)
{
    char url[640];
    struct strbuf text = {0};
    json_t *answer = NULL;
    long status = 0;
    int rc;

    snprintf(url, sizeof url, "%s/api/models/%s/revision/main?blobs=true", h->endpoint,
             h->name.repo);
    rc = transfer_text(&h->all, url, LISTING_MOST, &status, &text, e);
    if (rc == 0 && status != 200) {
        rc = transfer_refused(status, h->name.repo, h->all.token, e);
        rc = rc == ERR_IO ? 1 : rc;
    } else if (rc == 0) {
        answer = json_read(strbuf_text(&text), text.len, url, e);
        rc = answer ? hub_files_read(&h->files, answer, e) : ERR_MODEL;
        if (rc == ERR_INPUT)
            error_prefix(e, "%s", url);
    } else if (rc == ERR_IO) {
        rc = 1;
    }
    json_decref(answer);
    strbuf_release(&text);
    return rc;
}

/* Escapes characters of a path that a URL cannot contain. */
static void put_path(struct strbuf *url, const char *path)
{
    for (; *path; path++)
        if (isalnum((unsigned char)*path) || strchr("-._~/", *path))
            strbuf_putc(url, *path);
        else
            strbuf_printf(url, "%%%02X", (unsigned char)*path);
}

/* ---- fetching ---- */

static bool is_there(const struct download *h, const struct hub_file *f, uint64_t *came)
{
    char path[PATH_MAX];
    struct stat st;

    *came = 0;
    hub_cache_blob(&h->cache, f->hash, "", path, sizeof path);
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == f->bytes)
        return true;
    hub_cache_blob(&h->cache, f->hash, ".incomplete", path, sizeof path);
    if (stat(path, &st) == 0 && (uint64_t)st.st_size <= f->bytes)
        *came = (uint64_t)st.st_size;
    return false;
}

/* The sizes are from the listing, which is untrusted. */
static uint64_t sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Sums the bytes to download, and checks the free space. */
static int count_missing(struct download *h, size_t *files, struct error *e)
{
    uint64_t missing = 0, came, room = hub_cache_room(&h->cache);
    char need[20], have[20];

    *files = 0;
    for (size_t i = 0; i < h->files.n; i++) {
        const struct hub_file *f = &h->files.file[i];

        if (!f->wanted || is_there(h, f, &came))
            continue;
        h->all.total = sum(h->all.total, f->bytes);
        missing = sum(missing, f->bytes - came);
        ++*files;
    }
    if (missing <= room)
        return 0;
    return error_set(
        e, ERR_IO,
        "%s: %s are to come and the disk has room for %s: make room, or set HF_HOME to "
        "a folder on another disk",
        h->name.repo, size_format(missing, need, sizeof need),
        size_format(room, have, sizeof have));
}

static int fetch_file(struct download *h, const struct hub_file *f, struct error *e)
{
    char part[PATH_MAX], whole[PATH_MAX], lock[PATH_MAX];
    struct strbuf url = {0};
    uint64_t came;
    int rc = 0;

    if (!is_there(h, f, &came)) {
        hub_cache_blob(&h->cache, f->hash, ".incomplete", part, sizeof part);
        hub_cache_blob(&h->cache, f->hash, "", whole, sizeof whole);
        strbuf_printf(&url, "%s/%s/resolve/%s/", h->endpoint, h->name.repo, h->files.commit);
        put_path(&url, f->path);
        if (url.failed)
            rc = error_set(e, ERR_MEMORY, "out of memory for a download");
        else if ((rc = hub_cache_lock(&h->cache, f->hash, lock, sizeof lock, e)) == 0)
            rc = transfer_file(&h->all,
                               &(struct transfer){url.data, f->path, part, whole, lock, f->bytes,
                                                  f->kind, f->hash},
                               e);
        strbuf_release(&url);
    }
    return rc < 0 ? rc : hub_cache_link(&h->cache, h->files.commit, f->path, f->hash, e);
}

static int fetch_wanted(struct download *h, struct error *e)
{
    char bytes[20];
    size_t files;
    int rc = hub_cache_make(&h->cache, e);

    if (rc < 0 || (rc = count_missing(h, &files, e)) < 0)
        return rc;
    if (files) {
        fprintf(stderr, "moetop: fetching %s, %zu file%s, %s, into %s\n", h->name.repo, files,
                files == 1 ? "" : "s", size_format(h->all.total, bytes, sizeof bytes),
                h->cache.folder);
        log_write(LOG_LEVEL_INFO, "fetching %s, %zu files, %s", h->name.repo, files, bytes);
    }
    progress_begin(&h->all.bar, "fetching");
    h->all.bar.lines = h->lines;
    for (size_t i = 0; rc == 0 && i < h->files.n; i++)
        if (h->files.file[i].wanted)
            rc = fetch_file(h, &h->files.file[i], e);
    progress_end(&h->all.bar);
    return rc < 0 ? rc : hub_cache_write_ref(&h->cache, h->files.commit, e);
}

/* ---- offline ---- */

static int list_folder(struct hub_files *f, const char *folder, const char *below, int depth)
{
    char path[PATH_MAX];
    struct dirent *entry;
    DIR *d = opendir(folder);

    while (d && (entry = readdir(d))) {
        struct stat st;
        char name[PATH_MAX];

        if (entry->d_name[0] == '.' ||
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path ||
            snprintf(name, sizeof name, "%s%s", below, entry->d_name) >= (int)sizeof name - 1 ||
            stat(path, &st) < 0)
            continue;
        if (S_ISDIR(st.st_mode) && depth < 4) {
            strcat(name, "/");
            list_folder(f, path, name, depth + 1);
        } else if (S_ISREG(st.st_mode) && MEM_FIT(f->file, f->n + 1)) {
            f->file[f->n] = (struct hub_file){.path = mem_string(name)};
            f->n += f->file[f->n].path != NULL;
        }
    }
    if (d)
        closedir(d);
    return 0;
}

/* The cached files of the repository, as a listing. Only complete, verified files are linked. */
static void list_cached(struct download *h)
{
    char folder[PATH_MAX];

    hub_cache_read_ref(&h->cache, h->files.commit);
    if (*h->files.commit &&
        hub_cache_file(&h->cache, h->files.commit, "", folder, sizeof folder, NULL) == 0)
        list_folder(&h->files, folder, "", 0);
    if (h->files.n)
        qsort(h->files.file, h->files.n, sizeof *h->files.file, hub_files_order);
}

/* ---- together ---- */

static int find(struct download *h, const char **main, struct error *e)
{
    struct error none = {0};
    int rc = ask_listing(h, e);

    if (rc < 0)
        return rc;
    if (rc == 0) {
        rc = hub_files_choose(&h->files, &h->name, main, e);
        if (rc < 0)
            error_prefix(e, "%s", h->name.repo);
        return rc < 0 ? rc : fetch_wanted(h, e);
    }
    list_cached(h);
    if (hub_files_choose(&h->files, &h->name, main, &none) < 0)
        return ERR_IO;
    fprintf(stderr, "moetop: %s; going on with what was fetched earlier\n", e ? e->text : "");
    return 0;
}

static int set_model(struct download *h, struct options *o, const char *main, struct error *e)
{
    char path[PATH_MAX];
    int rc = hub_cache_file(&h->cache, h->files.commit, main, path, sizeof path, e);

    if (rc == 0)
        rc = options_set(o, &option_table[OPTION_ID_model], path, o->origin[OPTION_ID_hf_repo].from,
                         "-hf", e);
    return rc;
}

int hub_fetch(struct options *o, struct error *e)
{
    enum option_origin hf = o->origin[OPTION_ID_hf_repo].from, m = o->origin[OPTION_ID_model].from;
    const char *main = "";
    struct download *h;
    int rc;

    if (!o->hf_repo || (o->model && m > hf))
        return 0;
    if (o->model && m == hf)
        return error_set(e, ERR_USAGE, "-m and -hf both name a model: give one of them");
    if (!(h = mem_alloc(1, sizeof *h)))
        return error_set(e, ERR_MEMORY, "out of memory for a download");
    h->lines = o->fetch;
    signals_catch();
    if ((rc = hub_name_parse(o->hf_repo, &h->name, e)) == 0 && (rc = find_endpoint(h, e)) == 0 &&
        (rc = find_token(h, e)) == 0 && (rc = hub_cache_find(&h->cache, h->name.repo, e)) == 0 &&
        (rc = find(h, &main, e)) == 0)
        rc = set_model(h, o, main, e);
    signals_release();
    if (rc == 0 && e)
        *e = (struct error){0};
    hub_files_release(&h->files);
    mem_free(h);
    return rc;
}
