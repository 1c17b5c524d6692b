/* See prompt_cache.h. The lock guards index, figures and the piece being written; it is held
 * briefly, never during disk access. */
#include "engine/run/state/prompt_cache.h"

#include "engine/base/cache.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES_MOST 16384 /* the index is searched linearly */
#define LEFT_OVER_S 3600 /* an unfinished file is removed after so many seconds */
#define PAUSE_NS (60 * CLOCK_SECOND)
#define NAME_BYTES (DIGEST_HEX - 1 + sizeof SEGMENT_SUFFIX) /* with the 0 */

/* An indexed piece. */
struct entry {
    char name[DIGEST_HEX];
    struct segment_place place; /* ids are its own memory */
    bool own;                   /* written by this process */
};

struct prompt_cache {
    char folder[PATH_MAX], key[DIGEST_HEX];
    uint64_t most;
    void (*say)(void *ctx, const char *line);
    void *say_ctx;
    bool told_damage;

    pthread_t thread;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t more, done;
    bool closing, failed_told;
    struct entry *entries;
    size_t n, room;
    struct disk_figures figures;
    char failure[240];  /* write error to report; empty: none */
    uint64_t failed_ns; /* when; 0: never */

    /* the piece being written; data NULL: none */
    uint8_t *data;
    size_t bytes;
    struct entry fresh;
};

/* A file of the folder, for eviction. */
struct file_age {
    char name[NAME_MAX + 1];
    struct timespec used;
    uint64_t bytes;
};

/* ---- files ---- */

static void file_of(const struct prompt_cache *c, const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s" SEGMENT_SUFFIX, c->folder, name);
}

/* The piece named by a file's name, or false. */
static bool piece_name(const char *file, char name[DIGEST_HEX])
{
    if (strspn(file, "0123456789abcdef") != DIGEST_HEX - 1 ||
        strcmp(file + DIGEST_HEX - 1, SEGMENT_SUFFIX) != 0)
        return false;
    snprintf(name, DIGEST_HEX, "%.64s", file);
    return true;
}

/* A file being written: ".NAME.state.NUMBER". */
static bool left_over(const char *file)
{
    return file[0] == '.' && strlen(file) > NAME_BYTES &&
           strncmp(file + DIGEST_HEX, SEGMENT_SUFFIX ".", sizeof SEGMENT_SUFFIX) == 0;
}

static bool ours(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_uid == geteuid() && !(st->st_mode & (S_IRWXG | S_IRWXO));
}

static void add_age(struct file_age **list, size_t *n, size_t *room, const char *file,
                    const struct stat *st)
{
    struct file_age *age;

    if (!MEM_ROOM(*list, *n, *room, 256))
        return;
    age = *list + (*n)++;
    age->used = st->st_mtim;
    age->bytes = (uint64_t)st->st_size;
    snprintf(age->name, sizeof age->name, "%s", file);
}

/* All pieces of the folder, of any model; removes old unfinished files. */
static struct file_age *list_files(const struct prompt_cache *c, size_t *n)
{
    struct file_age *list = NULL;
    DIR *d = opendir(c->folder);
    struct dirent *entry;
    char name[DIGEST_HEX];
    size_t room = 0;
    struct stat st;

    *n = 0;
    while (d && (entry = readdir(d))) {
        bool rest = left_over(entry->d_name);

        if ((!rest && !piece_name(entry->d_name, name)) ||
            fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !ours(&st))
            continue;
        if (rest && time(NULL) - st.st_mtim.tv_sec > LEFT_OVER_S)
            unlinkat(dirfd(d), entry->d_name, 0);
        else
            add_age(&list, n, &room, entry->d_name, &st);
    }
    if (d)
        closedir(d);
    return list;
}

static int by_age(const void *a, const void *b)
{
    const struct timespec *x = &((const struct file_age *)a)->used,
                          *y = &((const struct file_age *)b)->used;

    return x->tv_sec != y->tv_sec     ? (x->tv_sec < y->tv_sec ? -1 : 1)
           : x->tv_nsec != y->tv_nsec ? (x->tv_nsec < y->tv_nsec ? -1 : 1)
                                      : 0;
}

/* ---- index; under the lock ---- */

static struct entry *entry_of(const struct prompt_cache *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->entries[i].name, name) == 0)
            return &c->entries[i];
    return NULL;
}

static void forget(struct prompt_cache *c, const char *name)
{
    struct entry *at = entry_of(c, name);

    if (!at)
        return;
    mem_free((int *)at->place.ids);
    *at = c->entries[--c->n];
}

/* Adds an entry; takes ownership of the ids. */
static void know(struct prompt_cache *c, const struct entry *fresh)
{
    if (!entry_of(c, fresh->name) && MEM_ROOM(c->entries, c->n, c->room, 64))
        c->entries[c->n++] = *fresh;
    else
        mem_free((int *)fresh->place.ids);
}

/* ---- eviction ---- */

/* Evicts the least recently used files until the folder is within its limit; counts the rest. */
static void make_room(struct prompt_cache *c)
{
    size_t n, gone = 0;
    struct file_age *list = list_files(c, &n);
    uint64_t bytes = 0;
    char path[PATH_MAX + NAME_MAX + 2], name[DIGEST_HEX];

    for (size_t i = 0; i < n; i++)
        bytes += list[i].bytes;
    if (n)
        qsort(list, n, sizeof *list, by_age);
    for (; gone < n && (bytes > c->most || n - gone > FILES_MOST); gone++) {
        snprintf(path, sizeof path, "%s/%s", c->folder, list[gone].name);
        unlink(path);
        bytes -= list[gone].bytes;
    }
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < gone; i++)
        if (piece_name(list[i].name, name))
            forget(c, name);
    c->figures.files = n - gone;
    c->figures.bytes = bytes;
    pthread_mutex_unlock(&c->lock);
    mem_free(list);
}

/* ---- its thread ---- */

static int write_piece(struct prompt_cache *c, struct error *e)
{
    char path[PATH_MAX + NAME_BYTES + 2];
    int rc = segment_seal(c->data, c->bytes, e);

    file_of(c, c->fresh.name, path, sizeof path);
    return rc < 0 ? rc : cache_write(path, c->data, c->bytes, e);
}

/* Compares places without their tokens. */
static bool same_place(const struct segment_place *a, const struct segment_place *b)
{
    return a->variant == b->variant && a->strengths == b->strengths && a->copy == b->copy &&
           strcmp(a->parent, b->parent) == 0;
}

/* Its tokens are a prefix of the piece that was just written, which replaces it. */
static bool superseded(const struct entry *old, const struct entry *fresh)
{
    const struct segment_place *p = &old->place, *q = &fresh->place;

    return !p->copy && same_place(p, q) && p->n < q->n &&
           memcmp(p->ids, q->ids, (size_t)p->n * sizeof *p->ids) == 0;
}

/* Under the lock. */
static void drop_superseded(struct prompt_cache *c)
{
    char path[PATH_MAX + NAME_BYTES + 2];

    for (size_t i = c->n; i-- > 0;) {
        if (!superseded(&c->entries[i], &c->fresh))
            continue;
        file_of(c, c->entries[i].name, path, sizeof path);
        unlink(path);
        forget(c, c->entries[i].name);
    }
}

/* The write has finished or failed. Under the lock. */
static void piece_done(struct prompt_cache *c, int rc, const struct error *e)
{
    if (rc == 0) {
        drop_superseded(c);
        know(c, &c->fresh);
        c->figures.written++;
        c->figures.files++;
        c->figures.bytes += c->bytes;
    } else {
        mem_free((int *)c->fresh.place.ids);
        snprintf(c->failure, sizeof c->failure, "%.230s", e->text);
        c->failed_ns = clock_now();
    }
    mem_free(c->data);
    c->data = NULL;
    pthread_cond_broadcast(&c->done);
}

static void *write_all(void *arg)
{
    struct prompt_cache *c = arg;
    struct error e;
    bool full;
    int rc;

    pthread_mutex_lock(&c->lock);
    while (!c->closing || c->data) {
        if (!c->data) {
            pthread_cond_wait(&c->more, &c->lock);
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        rc = write_piece(c, &e);
        pthread_mutex_lock(&c->lock);
        piece_done(c, rc, &e);
        full = c->figures.bytes > c->most || c->n > FILES_MOST;
        pthread_mutex_unlock(&c->lock);
        if (full)
            make_room(c);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- called by the engine ---- */

/* Adds the head of a piece of this model to the index. */
static void glance(struct prompt_cache *c, const char *file, uint8_t *head)
{
    char path[PATH_MAX + NAME_BYTES + 2];
    struct entry fresh = {0};
    int *ids, fd;
    ssize_t n = 0;

    if (!piece_name(file, fresh.name))
        return;
    file_of(c, fresh.name, path, sizeof path);
    if ((fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)) < 0)
        return;
    n = pread(fd, head, segment_head_bytes(), 0);
    close(fd);
    ids = mem_alloc(SEGMENT_TOKENS, sizeof *ids);
    if (ids && n > 0 && segment_glance(head, (size_t)n, c->key, fresh.name, &fresh.place, ids))
        know(c, &fresh);
    else
        mem_free(ids);
}

static int read_heads(struct prompt_cache *c, struct error *e)
{
    uint8_t *head = mem_alloc(segment_head_bytes(), 1);
    struct file_age *list;
    size_t n;

    if (!head)
        return error_set(e, ERR_MEMORY, "no memory for the prompt cache");
    list = list_files(c, &n);
    for (size_t i = 0; i < n; i++)
        glance(c, list[i].name, head);
    mem_free(list);
    mem_free(head);
    return 0;
}

static int check_folder(const char *folder, struct error *e)
{
    struct stat st;
    int rc = 0;

    if ((mkdir(folder, 0700) < 0 && errno != EEXIST) || stat(folder, &st) < 0)
        rc = error_set(e, ERR_IO, "%s: %s; name a folder that can be written", folder,
                       strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        rc = error_set(e, ERR_IO, "%s is no folder", folder);
    else if (st.st_uid != geteuid() || st.st_mode & (S_IWGRP | S_IWOTH))
        rc = error_set(e, ERR_IO,
                       "%s may be written to by others: what lies there is private; "
                       "name a folder of your own",
                       folder);
    else if (access(folder, R_OK | W_OK | X_OK) < 0)
        rc = error_set(e, ERR_IO, "%s: %s; name a folder that can be written", folder,
                       strerror(errno));
    return rc;
}

int prompt_cache_open(struct prompt_cache **out, const char *folder, uint64_t most, const char *key,
                      void (*say)(void *ctx, const char *line), void *say_ctx, struct error *e)
{
    struct prompt_cache *c;
    int rc = check_folder(folder, e);

    *out = NULL;
    if (rc < 0)
        return rc;
    if (!(c = mem_alloc(1, sizeof *c)))
        return error_set(e, ERR_MEMORY, "no memory for the prompt cache");
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->more, NULL);
    pthread_cond_init(&c->done, NULL);
    c->say = say;
    c->say_ctx = say_ctx;
    c->most = c->figures.most = most;
    snprintf(c->key, sizeof c->key, "%s", key);
    if (!realpath(folder, c->folder))
        rc = error_set(e, ERR_IO, "%s: %s", folder, strerror(errno));
    if (rc == 0)
        rc = read_heads(c, e);
    if (rc == 0)
        make_room(c);
    if (rc == 0 && pthread_create(&c->thread, NULL, write_all, c) != 0)
        rc = error_set(e, ERR_MEMORY, "the thread of the prompt cache cannot be started");
    c->running = rc == 0;
    if (rc < 0) {
        prompt_cache_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void prompt_cache_close(struct prompt_cache *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_broadcast(&c->more);
    pthread_mutex_unlock(&c->lock);
    if (c->running)
        pthread_join(c->thread, NULL);
    for (size_t i = 0; i < c->n; i++)
        mem_free((int *)c->entries[i].place.ids);
    mem_free(c->entries);
    pthread_cond_destroy(&c->more);
    pthread_cond_destroy(&c->done);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

bool prompt_cache_has(struct prompt_cache *c, const char *name)
{
    bool has;

    pthread_mutex_lock(&c->lock);
    has = entry_of(c, name) != NULL || (c->data && strcmp(c->fresh.name, name) == 0);
    pthread_mutex_unlock(&c->lock);
    return has;
}

static int agree(const struct entry *at, const int *ids, int n)
{
    int i = 0;

    while (i < n && i < at->place.n && at->place.ids[i] == ids[i])
        i++;
    return at->place.copy && i < at->place.n ? 0 : i;
}

int prompt_cache_find(struct prompt_cache *c, const struct segment_place *where, const int *ids,
                      int n, char name[DIGEST_HEX])
{
    int best = 0;

    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->n; i++) {
        const struct entry *at = &c->entries[i];
        int common;

        if (!same_place(&at->place, where) || (common = agree(at, ids, n)) <= best)
            continue;
        best = common;
        snprintf(name, DIGEST_HEX, "%s", at->name);
    }
    pthread_mutex_unlock(&c->lock);
    return best;
}

/* Removes an unusable piece; false: it was gone already. */
static void refuse(struct prompt_cache *c, const char *name, const char *path,
                   const struct error *e)
{
    char line[700];

    unlink(path);
    pthread_mutex_lock(&c->lock);
    forget(c, name);
    c->figures.refused++;
    pthread_mutex_unlock(&c->lock);
    if (c->told_damage || !c->say)
        return;
    c->told_damage = true;
    snprintf(line, sizeof line, "a file of the prompt cache is not used: %s", e->text);
    c->say(c->say_ctx, line);
}

int prompt_cache_read(struct prompt_cache *c, const char *name, const struct segment_shape *shape,
                      uint8_t **data, struct segment *out, struct error *e)
{
    char path[PATH_MAX + NAME_BYTES + 2], *text;
    size_t n;
    int rc;

    file_of(c, name, path, sizeof path);
    *data = NULL;
    rc = cache_read(path, segment_bytes(shape, SEGMENT_TOKENS, true), &text, &n, e);
    if (rc == 0 && !text) { /* somebody removed it */
        pthread_mutex_lock(&c->lock);
        forget(c, name);
        pthread_mutex_unlock(&c->lock);
        return error_set(e, ERR_IO, "%s is gone", path);
    }
    if (rc == 0 && (rc = segment_open((uint8_t *)text, n, shape, c->key, name, out, e)) < 0)
        error_prefix(e, "%s", path);
    if (rc < 0) {
        mem_free(text);
        if (rc != ERR_MEMORY)
            refuse(c, name, path, e);
        return rc;
    }
    pthread_mutex_lock(&c->lock);
    c->figures.read++;
    c->figures.read_tokens += (uint64_t)out->place.n;
    pthread_mutex_unlock(&c->lock);
    *data = (uint8_t *)text;
    return 0;
}

void prompt_cache_use(struct prompt_cache *c, const char *name)
{
    char path[PATH_MAX + NAME_BYTES + 2];
    struct timespec now[2];

    file_of(c, name, path, sizeof path);
    clock_gettime(CLOCK_REALTIME, &now[0]); /* finer than UTIME_NOW */
    now[1] = now[0];
    utimensat(AT_FDCWD, path, now, AT_SYMLINK_NOFOLLOW);
}

/* An error is reported once. */
static void tell_failure(struct prompt_cache *c)
{
    char line[400] = "";

    pthread_mutex_lock(&c->lock);
    if (c->failure[0] && !c->failed_told) {
        c->failed_told = true;
        snprintf(line, sizeof line, "the prompt cache cannot be written: %s", c->failure);
    }
    c->failure[0] = 0;
    pthread_mutex_unlock(&c->lock);
    if (line[0] && c->say)
        c->say(c->say_ctx, line);
}

bool prompt_cache_busy(struct prompt_cache *c, int wait)
{
    struct timespec until;
    bool busy;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)wait * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&c->lock);
    while (c->data && wait && pthread_cond_timedwait(&c->done, &c->lock, &until) == 0)
        ;
    busy = c->data != NULL;
    pthread_mutex_unlock(&c->lock);
    tell_failure(c);
    return busy;
}

bool prompt_cache_writable(struct prompt_cache *c)
{
    bool writable;

    pthread_mutex_lock(&c->lock);
    writable = !c->failed_ns || clock_now() - c->failed_ns > PAUSE_NS;
    pthread_mutex_unlock(&c->lock);
    return writable;
}

void prompt_cache_write(struct prompt_cache *c, uint8_t *data, size_t bytes,
                        const struct segment_place *place)
{
    int *ids = mem_alloc(SEGMENT_TOKENS, sizeof *ids);

    assert(!c->data);
    if (!ids || bytes > c->most) {
        pthread_mutex_lock(&c->lock);
        snprintf(c->failure, sizeof c->failure,
                 "a piece of %zu MiB is more than --prompt-cache-size", bytes >> 20);
        c->failed_ns = clock_now();
        pthread_mutex_unlock(&c->lock);
        mem_free(ids);
        mem_free(data);
        return;
    }
    memcpy(ids, place->ids, (size_t)place->n * sizeof *ids);
    pthread_mutex_lock(&c->lock);
    c->fresh.place = *place;
    c->fresh.place.ids = ids;
    c->fresh.own = true;
    segment_name(place, c->fresh.name);
    c->data = data;
    c->bytes = bytes;
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
}

void prompt_cache_withdraw(struct prompt_cache *c)
{
    char path[PATH_MAX + NAME_BYTES + 2];

    pthread_mutex_lock(&c->lock);
    while (c->data)
        pthread_cond_wait(&c->done, &c->lock);
    for (size_t i = c->n; i-- > 0;) {
        if (!c->entries[i].own)
            continue;
        file_of(c, c->entries[i].name, path, sizeof path);
        unlink(path);
        forget(c, c->entries[i].name);
    }
    pthread_mutex_unlock(&c->lock);
}

struct disk_figures prompt_cache_look(struct prompt_cache *c)
{
    struct disk_figures f;

    pthread_mutex_lock(&c->lock);
    f = c->figures;
    pthread_mutex_unlock(&c->lock);
    return f;
}
