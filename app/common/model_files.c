/* See model_files.h. Links to files are followed, as the Hub's cache consists of them; links to
 * folders too, but never into a parent folder, and only to the depth of usual caches. */
#include "app/common/model_files.h"

#include "engine/base/mem.h"
#include "engine/base/path.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH 16

/* The folders on the current path, to detect cycles. */
struct way {
    const struct way *up;
    dev_t device;
    ino_t number;
    int depth;
};

static bool holds(const char *folder, const char *name)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           access(path, F_OK) == 0;
}

/* "-00002-of-00005.gguf": position of its number; NULL: it is not split. */
static char *part_number(char *path)
{
    static const char form[] = "-#####-of-#####.gguf";
    size_t n = strlen(path), m = sizeof form - 1;
    char *at = path + n - m;

    if (n <= m)
        return NULL;
    for (size_t i = 0; i < m; i++)
        if (form[i] == '#' ? !isdigit((unsigned char)at[i]) : at[i] != form[i])
            return NULL;
    return at + 1;
}

/* A later part is listed if the first one is missing, so that the problem is reported. */
static bool is_later_part(const char *path)
{
    char first[PATH_MAX], *number;

    snprintf(first, sizeof first, "%s", path);
    number = part_number(first);
    if (!number || strncmp(number, "00001", 5) == 0)
        return false;
    memcpy(number, "00001", 5);
    return access(first, F_OK) == 0;
}

static int add(struct model_files *f, const char *path, struct error *e)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return 0;
    for (size_t i = 0; i < f->n; i++)
        if (f->found[i].device == st.st_dev && f->found[i].number == st.st_ino)
            return 0;
    if (f->n == MODEL_FILES_MOST)
        return error_set(e, ERR_MODEL, "%s: more than %d models; name a folder further down", path,
                         MODEL_FILES_MOST);
    if ((f->n == f->room && !MEM_FIT(f->paths, f->room ? 2 * f->room : 16)) ||
        !MEM_ROOM(f->found, f->n, f->room, 16) || !(f->paths[f->n] = mem_string(path)))
        return error_set(e, ERR_MEMORY, "out of memory for the list of models");
    f->found[f->n++] = (struct model_file_id){st.st_dev, st.st_ino};
    return 0;
}

static int walk(struct model_files *f, const char *folder, const struct way *up, struct error *e);

static int visit(struct model_files *f, const char *path, const char *name, const struct way *up,
                 struct error *e)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return 0; /* a dangling link */
    if (S_ISDIR(st.st_mode)) {
        struct way here = {up, st.st_dev, st.st_ino, up->depth + 1};

        for (const struct way *w = up; w; w = w->up)
            if (w->device == st.st_dev && w->number == st.st_ino)
                return 0;
        return here.depth < DEPTH ? walk(f, path, &here, e) : 0;
    }
    return S_ISREG(st.st_mode) && path_stem(name, ".gguf") && !is_later_part(path) ? add(f, path, e)
                                                                                   : 0;
}

static int walk(struct model_files *f, const char *folder, const struct way *up, struct error *e)
{
    char path[PATH_MAX];
    struct dirent *entry;
    DIR *d = opendir(folder);
    int rc = 0;

    if (!d)
        return up->depth
                   ? 0
                   : error_set(e, ERR_IO, "%s: cannot be listed: %s", folder, strerror(errno));
    if (holds(folder, "config.json"))
        rc = add(f, folder, e);
    while (rc == 0 && (entry = readdir(d)))
        if (entry->d_name[0] != '.' &&
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < (int)sizeof path)
            rc = visit(f, path, entry->d_name, up, e);
    closedir(d);
    return rc;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool model_files_folder(const char *path)
{
    struct model_files below = {0};
    struct error ignored;
    struct stat st;
    bool many;

    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode) || holds(path, "config.json"))
        return false;
    many = model_files_find(&below, path, &ignored) < 0 || below.n != 1;
    model_files_release(&below);
    return many;
}

int model_files_find(struct model_files *f, const char *path, struct error *e)
{
    struct stat st;
    char clean[PATH_MAX];
    size_t n = (size_t)snprintf(clean, sizeof clean, "%s", path);
    struct way top;
    int rc;

    if (n >= sizeof clean || stat(clean, &st) < 0)
        return error_set(e, ERR_IO, "%s: %s", path,
                         strerror(n < sizeof clean ? errno : ENAMETOOLONG));
    while (n > 1 && clean[n - 1] == '/')
        clean[--n] = 0;
    top = (struct way){NULL, st.st_dev, st.st_ino, 0};
    rc = S_ISDIR(st.st_mode)    ? walk(f, clean, &top, e)
         : is_later_part(clean) ? 0
                                : add(f, clean, e);
    if (f->n)
        qsort(f->paths, f->n, sizeof *f->paths, by_path);
    return rc;
}

void model_files_release(struct model_files *f)
{
    for (size_t i = 0; i < f->n; i++)
        mem_free(f->paths[i]);
    mem_free(f->paths);
    mem_free(f->found);
    *f = (struct model_files){0};
}
