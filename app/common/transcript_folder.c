/* The folder of chats (transcript.h): names, the list, searching, and the locks of open chats. UI
 * thread. */
#include "app/common/transcript.h"

#include "app/common/paths.h"
#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/base/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LIST_MAX 200

static int chats_folder(char *out, size_t size, struct error *e)
{
    char home[PATH_MAX];

    paths_home("STATE", home, sizeof home);
    if (!home[0])
        return error_set(e, ERR_IO,
                         "no place to save conversations: neither XDG_STATE_HOME nor HOME is set");
    if (snprintf(out, size, "%s/chats", home) >= (int)size)
        return error_set(e, ERR_IO, "the name of the folder for conversations is too long");
    return 0;
}

int transcript_default_path(char *out, size_t size, struct error *e)
{
    char folder[PATH_MAX], when[32];
    time_t now = time(NULL);
    struct tm tm;
    int rc = chats_folder(folder, sizeof folder, e);

    if (rc < 0)
        return rc;
    localtime_r(&now, &tm);
    strftime(when, sizeof when, "%Y-%m-%d_%H-%M-%S", &tm);
    for (int i = 1; i < 1000; i++) {
        char more[16] = "";

        if (i > 1)
            snprintf(more, sizeof more, "_%d", i);
        if (snprintf(out, size, "%s/%s%s.json", folder, when, more) >= (int)size)
            break;
        if (access(out, F_OK) < 0)
            return 0;
    }
    return error_set(e, ERR_IO, "%s: no free name for a conversation", folder);
}

int transcript_named_path(const char *name, char *out, size_t size, struct error *e)
{
    char folder[PATH_MAX];
    int rc;

    if (!name[0])
        return error_set(e, ERR_USAGE, "a conversation needs a name");
    if (strchr(name, '/') || path_stem(name, ".md") || path_stem(name, ".json") ||
        path_stem(name, ".html")) {
        if (snprintf(out, size, "%s", name) >= (int)size)
            return error_set(e, ERR_USAGE, "the name is too long");
        return 0;
    }
    rc = chats_folder(folder, sizeof folder, e);
    if (rc == 0 && (name[0] == '.' || snprintf(out, size, "%s/%s.json", folder, name) >= (int)size))
        return error_set(e, ERR_USAGE, "'%.60s' is no name for a conversation", name);
    return rc < 0 ? rc : file_make_folders(folder, e);
}

int transcript_chat_path(const char *name, char *out, size_t size, struct error *e)
{
    char safe[96];

    utf8_strip(safe, sizeof safe, name, strlen(name), 0);
    if (strchr(name, '/') || name[0] == '.' || !name[strspn(name, "0123456789")] ||
        path_stem(name, ".json") || path_stem(name, ".md") || path_stem(name, ".html") ||
        strcmp(safe, name) != 0)
        return error_set(e, ERR_USAGE, "'%.60s' is no name for a chat: letters, not a path", safe);
    return transcript_named_path(name, out, size, e);
}

int transcript_move(const char *from, const char *to, struct error *e)
{
    char part[2][PATH_MAX + 8];

    /* link fails where rename would overwrite another chat */
    if (link(from, to) < 0)
        return errno == EEXIST ? error_set(e, ERR_USAGE, "there is a chat of that name already")
                               : error_set(e, ERR_IO, "%s: %s", to, strerror(errno));
    unlink(from);
    snprintf(part[0], sizeof part[0], "%s.part", from);
    snprintf(part[1], sizeof part[1], "%s.part", to);
    rename(part[0], part[1]); /* usually there is none */
    return 0;
}

static int newest_first(const void *a, const void *b)
{
    const struct transcript_info *x = a, *y = b;

    if (x->changed != y->changed)
        return x->changed < y->changed ? 1 : -1;
    if (x->nanos != y->nanos)
        return x->nanos < y->nanos ? 1 : -1;
    return strcmp(x->name, y->name);
}

bool transcript_is_named(const struct transcript_info *i)
{
    return strspn(i->name, "0123456789-_") < strlen(i->name);
}

/* The first user message, as one line that is safe to print. */
static void make_title(const struct transcript *t, char *out, size_t size)
{
    size_t i = 0, n;

    while (i < t->n && t->entries[i].role != ROLE_USER)
        i++;
    n = i < t->n ? strcspn(t->entries[i].text, "\r\n") : 0;
    utf8_strip(out, size, n ? t->entries[i].text : "", n, 0);
}

/* Time of the last write, of the file or its part file. */
static void written_take(struct transcript_info *i, const char *path, const struct stat *st)
{
    char part[PATH_MAX + 310];
    struct timespec at = st->st_mtim;
    struct stat beside;

    snprintf(part, sizeof part, "%s.part", path);
    if (stat(part, &beside) == 0 &&
        (beside.st_mtim.tv_sec > at.tv_sec ||
         (beside.st_mtim.tv_sec == at.tv_sec && beside.st_mtim.tv_nsec > at.tv_nsec)))
        at = beside.st_mtim;
    i->changed = (int64_t)at.tv_sec;
    i->nanos = (int64_t)at.tv_nsec;
}

/* Names and times of the files in the folder, newest first; nothing is opened. mem_* array. */
static int folder_scan(const char *folder, struct transcript_info **out, size_t *n, struct error *e)
{
    struct transcript_info *list = NULL;
    size_t count = 0, size = 0;
    char path[PATH_MAX + 300];
    struct dirent *d;
    struct stat st;
    DIR *dir = opendir(folder);
    int rc = 0;

    while (dir && (d = readdir(dir))) {
        size_t len = path_stem(d->d_name, ".json");

        if (d->d_name[0] == '.' || !len || len >= sizeof list->name)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
            continue;
        if (!MEM_ROOM(list, count, size, 32)) {
            rc = error_set(e, ERR_MEMORY, "out of memory for the list of conversations");
            break;
        }
        list[count] = (struct transcript_info){0};
        written_take(&list[count], path, &st);
        memcpy(list[count].name, d->d_name, len);
        list[count++].name[len] = 0;
    }
    if (dir)
        closedir(dir);
    if (count)
        qsort(list, count, sizeof *list, newest_first);
    *out = list;
    *n = count;
    return rc;
}

/* Whether some message contains the words, ignoring ASCII case. */
static bool contains(const struct transcript *t, const char *words)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcasestr(t->entries[i].text, words))
            return true;
    return false;
}

/* Reads one and fills in the fields that need its text. */
static bool info_read(const char *folder, const char *words, struct transcript_info *i)
{
    char path[PATH_MAX + 300];
    struct transcript t;
    bool wanted;

    transcript_init(&t);
    snprintf(path, sizeof path, "%s/%s.json", folder, i->name);
    wanted = transcript_load(&t, path, NULL) == 0 && (!words || !words[0] || contains(&t, words));
    if (wanted) {
        i->n = t.n;
        make_title(&t, i->title, sizeof i->title);
    }
    transcript_release(&t);
    return wanted;
}

int transcript_search(const char *words, struct transcript_info **out, size_t *n, struct error *e)
{
    char folder[PATH_MAX];
    struct transcript_info *list = NULL;
    size_t count = 0, kept = 0;
    int rc = chats_folder(folder, sizeof folder, e);

    *out = NULL;
    *n = 0;
    if (rc == 0)
        rc = folder_scan(folder, &list, &count, e);
    for (size_t i = 0; i < count && kept < LIST_MAX && rc == 0; i++)
        if (info_read(folder, words, &list[i]))
            list[kept++] = list[i];
    if (rc < 0 || !kept) {
        mem_free(list);
        return rc;
    }
    *out = list;
    *n = kept;
    return 0;
}

int transcript_list(struct transcript_info **out, size_t *n, struct error *e)
{
    return transcript_search(NULL, out, n, e);
}

bool transcript_newest(struct transcript_info *out)
{
    char folder[PATH_MAX];
    struct transcript_info *list = NULL;
    size_t count = 0, i = 0;

    if (chats_folder(folder, sizeof folder, NULL) < 0 ||
        folder_scan(folder, &list, &count, NULL) < 0)
        count = 0;
    while (i < count && !info_read(folder, NULL, &list[i]))
        i++;
    if (i < count)
        *out = list[i];
    mem_free(list);
    return i < count;
}

const char *transcript_ago(int64_t then, int64_t now, char out[32])
{
    int64_t s = now > then ? now - then : 0;
    time_t day = (time_t)then;
    struct tm tm;

    if (s < 60)
        snprintf(out, 32, "just now");
    else if (s < 3600)
        snprintf(out, 32, "%d min ago", (int)(s / 60));
    else if (s < 48 * 3600)
        snprintf(out, 32, "%d h ago", (int)(s / 3600));
    else if (s < 30 * 24 * 3600)
        snprintf(out, 32, "%d days ago", (int)(s / (24 * 3600)));
    else
        strftime(out, 32, "on %Y-%m-%d", localtime_r(&day, &tm));
    return out;
}

/* ---- locks ---- */

/* One byte of one file is locked for each chat, so that no lock files remain; the lock is released
 * however the program ends. */
static off_t lock_place(const char *path)
{
    char folder[PATH_MAX], whole[PATH_MAX];
    const char *name = path_name(path);
    uint64_t h;

    path_folder(path, folder, sizeof folder);
    if (!realpath(folder, whole))
        snprintf(whole, sizeof whole, "%s", folder);
    h = hash_bytes(HASH_START, whole, strlen(whole));
    return (off_t)(hash_bytes(h, name, strlen(name)) >> 2);
}

bool transcript_lock(const char *path, int *fd)
{
    char folder[PATH_MAX], name[PATH_MAX + 8];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};

    *fd = -1;
    if (chats_folder(folder, sizeof folder, NULL) < 0 || file_make_folders(folder, NULL) < 0)
        return true;
    snprintf(name, sizeof name, "%s/.lock", folder);
    *fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    lock.l_start = lock_place(path);
    if (*fd < 0 || fcntl(*fd, F_OFD_SETLK, &lock) == 0)
        return true;
    if (errno != EAGAIN && errno != EACCES)
        return true; /* a file system without locks */
    close(*fd);
    *fd = -1;
    return false;
}
