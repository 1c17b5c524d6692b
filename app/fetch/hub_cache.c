/* See hub_cache.h. */
#include "app/fetch/hub_cache.h"

#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const struct file_kind ref_kind = {"name of a commit", 200, ERR_INPUT};

const char *hub_cache_variable(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* The folder of all repositories; returns its length, 0: there is no home. */
static size_t root(char *out, size_t size)
{
    static const struct {
        const char *variable, *below;
    } places[] = {
        {"HF_HUB_CACHE", ""},
        {"HF_HOME", "/hub"},
        {"XDG_CACHE_HOME", "/huggingface/hub"},
        {"HOME", "/.cache/huggingface/hub"},
    };

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = hub_cache_variable(places[i].variable);

        if (value)
            return (size_t)snprintf(out, size, "%s%s", value, places[i].below);
    }
    return 0;
}

int hub_cache_find(struct hub_cache *c, const char *repo, struct error *e)
{
    size_t n = root(c->folder, sizeof c->folder), at = n;

    if (!n)
        return error_set(e, ERR_USAGE,
                         "-hf: there is no home folder to keep models in: set HF_HOME");
    if (n + strlen(repo) + 16 > sizeof c->folder)
        return error_set(e, ERR_USAGE, "-hf: the cache folder's name is too long");
    at += (size_t)snprintf(c->folder + at, sizeof c->folder - at, "/models--");
    for (; *repo; repo++)
        at += (size_t)snprintf(c->folder + at, sizeof c->folder - at, *repo == '/' ? "--" : "%c",
                               *repo);
    return 0;
}

int hub_cache_make(const struct hub_cache *c, struct error *e)
{
    static const char *const names[] = {"blobs", "refs", "snapshots"};
    char path[PATH_MAX];
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", c->folder, names[i]);
        rc = file_make_folders(path, e);
    }
    return rc;
}

void hub_cache_blob(const struct hub_cache *c, const char *hash, const char *ending, char *out,
                    size_t size)
{
    snprintf(out, size, "%s/blobs/%s%s", c->folder, hash, ending);
}

int hub_cache_lock(const struct hub_cache *c, const char *hash, char *out, size_t size,
                   struct error *e)
{
    const char *name = strrchr(c->folder, '/');
    int n = snprintf(out, size, "%.*s/.locks%s", (int)(name - c->folder), c->folder, name), rc;

    if ((rc = file_make_folders(out, e)) == 0)
        snprintf(out + n, size - (size_t)n, "/%s.lock", hash);
    return rc;
}

int hub_cache_file(const struct hub_cache *c, const char *commit, const char *path, char *out,
                   size_t size, struct error *e)
{
    int n = snprintf(out, size, "%s/snapshots/%s%s%s", c->folder, commit, *path ? "/" : "", path);

    return n < (int)size ? 0 : error_set(e, ERR_USAGE, "%s: too long a name", path);
}

int hub_cache_link(const struct hub_cache *c, const char *commit, const char *path,
                   const char *hash, struct error *e)
{
    char link[PATH_MAX], aside[PATH_MAX + 8], to[DIGEST_HEX + 1600];
    size_t at = 0;
    int rc = hub_cache_file(c, commit, path, link, sizeof link, e);
    char *slash;

    if (rc < 0)
        return rc;
    /* "../" for snapshots and the commit, and one for each folder of the path */
    at += (size_t)snprintf(to, sizeof to, "../../");
    for (const char *p = path; (p = strchr(p, '/')); p++)
        at += (size_t)snprintf(to + at, sizeof to - at, "../");
    snprintf(to + at, sizeof to - at, "blobs/%s", hash);
    slash = strrchr(link, '/');
    *slash = 0;
    if ((rc = file_make_folders(link, e)) < 0)
        return rc;
    *slash = '/';
    snprintf(aside, sizeof aside, "%s.new", link);
    unlink(aside);
    if (symlink(to, aside) < 0 || rename(aside, link) < 0)
        return error_set(e, ERR_IO, "%s: cannot be made: %s", link, strerror(errno));
    return 0;
}

int hub_cache_write_ref(const struct hub_cache *c, const char *commit, struct error *e)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/refs/main", c->folder);
    return file_replace(path, commit, strlen(commit), e);
}

void hub_cache_read_ref(const struct hub_cache *c, char commit[41])
{
    char path[PATH_MAX], *text = NULL;
    size_t n = 0;

    *commit = 0;
    snprintf(path, sizeof path, "%s/refs/main", c->folder);
    if (file_read(path, &ref_kind, &text, &n, NULL) == 0 && strspn(text, "0123456789abcdef") >= 40)
        snprintf(commit, 41, "%s", text);
    mem_free(text);
}

uint64_t hub_cache_room(const struct hub_cache *c)
{
    struct statvfs s;

    return statvfs(c->folder, &s) == 0 ? (uint64_t)s.f_bavail * s.f_frsize : UINT64_MAX;
}
