/* See model_places.h. Each program has its variables and its usual folder; missing ones are not an
 * error. */
#include "app/common/model_places.h"

#include "engine/base/utf8.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* A variable with the folder, and the path below it; HOME: the default folder. For each program the
 * first that is set is used. */
static const struct {
    const char *program, *variable, *below;
} caches[] = {
    {"hub", "HF_HUB_CACHE", ""},
    {"hub", "HUGGINGFACE_HUB_CACHE", ""},
    {"hub", "HF_HOME", "/hub"},
    {"hub", "XDG_CACHE_HOME", "/huggingface/hub"},
    {"hub", "HOME", "/.cache/huggingface/hub"},
    {"llama", "LLAMA_CACHE", ""},
    {"llama", "XDG_CACHE_HOME", "/llama.cpp"},
    {"llama", "HOME", "/.cache/llama.cpp"},
    {"studio", "HOME", "/.lmstudio/models"},
    {"studio, before", "HOME", "/.cache/lm-studio/models"},
};

int model_places_find(struct model_files *f, char *const *folders, size_t n, struct error *e)
{
    const char *done = "";
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        rc = model_files_find(f, folders[i], e);
    for (size_t i = 0; i < sizeof caches / sizeof *caches && rc == 0; i++) {
        const char *value = getenv(caches[i].variable);
        char path[PATH_MAX];

        if (!value || !*value || strcmp(caches[i].program, done) == 0)
            continue;
        done = caches[i].program;
        if (snprintf(path, sizeof path, "%s%s", value, caches[i].below) < (int)sizeof path &&
            access(path, R_OK | X_OK) == 0 && model_files_find(f, path, e) == ERR_MEMORY)
            rc = ERR_MEMORY;
    }
    return rc;
}

/* ".../models--org--name/snapshots/REVISION/file": org/name, and what is below the revision. */
static bool hub_name(const char *path, char *out, size_t size)
{
    const char *at = strstr(path, "/models--"), *end, *file;
    size_t n;

    if (!at)
        return false;
    at += strlen("/models--");
    end = at + strcspn(at, "/");
    if (strncmp(end, "/snapshots/", 11) != 0)
        return false;
    file = end + 11 + strcspn(end + 11, "/");
    n = (size_t)(end - at);
    n = n < size - 1 ? n : size - 1;
    memcpy(out, at, n);
    out[n] = 0;
    if ((at = strstr(out, "--"))) {
        out[at - out] = '/';
        memmove(out + (at - out) + 1, at + 2, strlen(at + 2) + 1);
    }
    n = strlen(out);
    snprintf(out + n, size - n, "%s", file);
    return true;
}

void model_places_name(const char *path, char *out, size_t size)
{
    char name[PATH_MAX];
    const char *slash = strrchr(path, '/'), *from = slash;
    size_t n;

    if (!hub_name(path, name, sizeof name)) {
        while (from && from > path && from[-1] != '/')
            from--;
        snprintf(name, sizeof name, "%s", from ? from : path);
    }
    n = utf8_escape(out, size, name, strlen(name), 0);
    out[n < size ? n : size - 1] = 0;
}

static const char *numbered(const struct model_files *f, const char *typed, struct error *e)
{
    unsigned long k = strtoul(typed, NULL, 10);

    if (k >= 1 && k <= f->n)
        return f->paths[k - 1];
    error_set(e, ERR_USAGE, "there is no model %.20s in the list; /model shows it", typed);
    return NULL;
}

const char *model_places_meant(const struct model_files *f, const char *typed, struct error *e)
{
    const char *found = NULL;
    size_t n = 0;

    if (typed[0] && !typed[strspn(typed, "0123456789")])
        return numbered(f, typed, e);
    for (size_t i = 0; i < f->n; i++) {
        char name[512];

        model_places_name(f->paths[i], name, sizeof name);
        if (strcasecmp(name, typed) == 0 || strcmp(f->paths[i], typed) == 0)
            return f->paths[i];
        if (strcasestr(name, typed)) {
            found = f->paths[i];
            n++;
        }
    }
    if (n == 1)
        return found;
    if (access(typed, F_OK) == 0)
        return typed;
    if (n)
        error_set(e, ERR_USAGE, "%zu models have %.100s in their names; /model shows their numbers",
                  n, typed);
    else
        error_set(e, ERR_USAGE, "there is no model %.100s; /model lists those at hand", typed);
    return NULL;
}
