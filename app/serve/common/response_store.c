/* See response_store.h. A list from the oldest to the newest, under one lock; files are read and
 * written under it too: they are small. */
#include "app/serve/common/response_store.h"

#include "engine/base/cache.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID_MOST 48
#define SUFFIX ".json"

struct kept {
    char id[ID_MOST];
    char *text; /* jansson's memory; NULL: in a file */
    size_t n;
    long long stamp; /* of files: when it was written */
};

struct response_store {
    pthread_mutex_t lock;
    char *folder;     /* NULL: memory */
    struct kept *all; /* the oldest first */
    size_t count, bytes;
};

/* Ids become names of files, and they come from clients. */
static bool is_id(const char *id)
{
    size_t n = strlen(id);

    return n > 5 && n < ID_MOST && strncmp(id, "resp_", 5) == 0 &&
           strspn(id + 5, "0123456789abcdef") == n - 5;
}

static void path_of(const struct response_store *s, const char *id, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s" SUFFIX, s->folder, id);
}

/* ---- under the lock ---- */

static void forget(struct response_store *s, size_t i)
{
    char path[PATH_MAX];

    if (s->folder) {
        path_of(s, s->all[i].id, path);
        unlink(path);
    }
    free(s->all[i].text); /* allocated by jansson */
    s->bytes -= s->all[i].n;
    s->count--;
    memmove(&s->all[i], &s->all[i + 1], (s->count - i) * sizeof *s->all);
}

/* Its index; count: none. */
static size_t find(const struct response_store *s, const char *id)
{
    size_t i = s->count;

    while (i && strcmp(s->all[i - 1].id, id) != 0)
        i--;
    return i ? i - 1 : s->count;
}

static void make_room(struct response_store *s, size_t n)
{
    while (s->count && (s->count == STORE_MOST || s->bytes + n > STORE_BYTES))
        forget(s, 0);
}

static void append(struct response_store *s, const char *id, char *text, size_t n, long long stamp)
{
    struct kept *k = &s->all[s->count++];

    *k = (struct kept){.text = text, .n = n, .stamp = stamp};
    snprintf(k->id, sizeof k->id, "%s", id);
    s->bytes += n;
}

/* ---- opening ---- */

static int by_stamp(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;

    return (x->stamp > y->stamp) - (x->stamp < y->stamp);
}

/* The files of an earlier start. */
static int find_files(struct response_store *s, struct error *e)
{
    DIR *d = opendir(s->folder);
    struct dirent *each;

    if (!d)
        return error_set(e, ERR_IO, "%s: %s", s->folder, strerror(errno));
    while ((each = readdir(d)) && s->count < STORE_MOST) {
        size_t n = strlen(each->d_name), id = n - strlen(SUFFIX);
        char name[ID_MOST], path[PATH_MAX];
        struct stat st;

        if (n <= strlen(SUFFIX) || id >= sizeof name || strcmp(each->d_name + id, SUFFIX) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)id, each->d_name);
        path_of(s, name, path);
        if (is_id(name) && stat(path, &st) == 0 && S_ISREG(st.st_mode))
            append(s, name, NULL, (size_t)st.st_size,
                   (long long)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
    }
    closedir(d);
    qsort(s->all, s->count, sizeof *s->all, by_stamp);
    make_room(s, 0);
    return 0;
}

int response_store_open(struct response_store **out, const char *where, struct error *e)
{
    struct response_store *s;
    int rc = 0;

    *out = NULL;
    if (strcmp(where, "none") == 0)
        return 0;
    s = mem_alloc(1, sizeof *s);
    if (!s)
        return error_set(e, ERR_MEMORY, "out of memory for the stored responses");
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    s->all = mem_alloc(STORE_MOST, sizeof *s->all);
    if (strcmp(where, "memory") != 0)
        s->folder = mem_string(where);
    if (!s->all || (!s->folder && strcmp(where, "memory") != 0))
        return error_set(e, ERR_MEMORY, "out of memory for the stored responses");
    if (s->folder && (rc = file_make_folders(s->folder, e)) == 0 &&
        (rc = cache_check(s->folder, e)) == 0)
        rc = find_files(s, e);
    return rc;
}

void response_store_close(struct response_store *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->count; i++)
        free(s->all[i].text); /* allocated by jansson */
    mem_free(s->all);
    mem_free(s->folder);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

/* ---- use ---- */

int response_store_put(struct response_store *s, const char *id, const json_t *o, struct error *e)
{
    char *text = s ? json_dumps(o, JSON_COMPACT) : NULL, path[PATH_MAX];
    size_t n = text ? strlen(text) : 0;
    int rc = 0;

    if (!s)
        return 0;
    if (!text)
        return error_set(e, ERR_MEMORY, "out of memory for a stored response");
    pthread_mutex_lock(&s->lock);
    make_room(s, n);
    if (s->folder) {
        path_of(s, id, path);
        rc = cache_write(path, text, n, e);
        free(text); /* allocated by jansson */
        text = NULL;
    }
    if (rc == 0)
        append(s, id, text, n, 0);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static json_t *load(const struct response_store *s, const char *id)
{
    char path[PATH_MAX], *text = NULL;
    struct error ignored = {0};
    json_t *o = NULL;
    size_t n;

    path_of(s, id, path);
    if (cache_read(path, STORE_BYTES, &text, &n, &ignored) == 0 && text)
        o = json_loadb(text, n, 0, NULL);
    mem_free(text);
    return o;
}

json_t *response_store_get(struct response_store *s, const char *id)
{
    json_t *o = NULL;
    size_t i;

    if (!s || !is_id(id))
        return NULL;
    pthread_mutex_lock(&s->lock);
    i = find(s, id);
    if (i < s->count && s->folder) {
        o = load(s, id);
    } else if (i < s->count) {
        o = json_loadb(s->all[i].text, s->all[i].n, 0, NULL);
    }
    pthread_mutex_unlock(&s->lock);
    return o;
}

bool response_store_remove(struct response_store *s, const char *id)
{
    size_t i;
    bool had;

    if (!s || !is_id(id))
        return false;
    pthread_mutex_lock(&s->lock);
    i = find(s, id);
    had = i < s->count;
    if (had)
        forget(s, i);
    pthread_mutex_unlock(&s->lock);
    return had;
}
