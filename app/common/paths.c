/* Where the program's own files are: beside the executable in a source tree, under share/moetop
 * when installed. Main thread. The location is derived from /proc/self/exe first, so that a tree or
 * an installed prefix can be moved as a whole. */
#include "app/common/paths.h"

#include "engine/base/cache.h"
#include "engine/base/file.h"
#include "engine/base/log.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUNDLED_MODEL "models/tiny-storyteller-Q8_0.gguf"

/* Folders that may hold the data, in order of preference. NULL past the end. */
static const char *candidate(int i, const char *exe_dir, char *out, size_t size)
{
    switch (i) {
    case 0:
        snprintf(out, size, "%s/configs", exe_dir);
        break; /* ./moetop */
    /* build/MODE/moetop, build/MODE/tests */
    case 1: snprintf(out, size, "%s/../../configs", exe_dir); break;
    case 2: snprintf(out, size, "%s/../../../configs", exe_dir); break;
    case 3: snprintf(out, size, "%s/../share/moetop", exe_dir); break; /* PREFIX/bin/moetop */
    case 4: snprintf(out, size, "%s/share/moetop", MOETOP_PREFIX); break;
    default: return NULL;
    }
    return out;
}

int paths_data(const char *below, char *out, size_t size, struct error *e)
{
    char exe[PATH_MAX], dir[PATH_MAX + 64], full[PATH_MAX + 256], whole[PATH_MAX], *slash;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);

    exe[n > 0 ? n : 0] = 0;
    if ((slash = strrchr(exe, '/')))
        *slash = 0;
    for (int i = 0; candidate(i, exe, dir, sizeof dir); i++) {
        if (snprintf(full, sizeof full, "%s/%s", dir, below) >= (int)sizeof full ||
            access(full, R_OK) < 0)
            continue;
        /* a path that people read, type and copy has no ".." in it */
        if (snprintf(out, size, "%s/%s", realpath(dir, whole) ? whole : dir, below) >= (int)size)
            break;
        return 0;
    }
    return error_set(e, ERR_IO,
                     "%s is neither beside %s/moetop nor under %s/share/moetop; reinstall moetop",
                     below, exe, MOETOP_PREFIX);
}

int paths_model(const char *given, char *out, size_t size, struct error *e)
{
    struct error why = {0};

    if (!given) {
        if (paths_data(BUNDLED_MODEL, out, size, &why) < 0)
            return error_set(e, ERR_MODEL, "the bundled model: %s, or name a model with -m",
                             why.text);
        return 0;
    }
    if (!*given)
        return error_set(e, ERR_USAGE, "-m: the name is empty");
    if (access(given, F_OK) < 0)
        return error_set(e, ERR_MODEL, "%s: %s", given, strerror(errno));
    if (snprintf(out, size, "%s", given) >= (int)size)
        return error_set(e, ERR_MODEL, "the model's name is too long");
    return 0;
}

void paths_home(const char *kind, char *out, size_t size)
{
    static const struct {
        const char *kind, *below;
    } homes[] = {
        {"CONFIG", ".config"},
        {"STATE", ".local/state"},
        {"CACHE", ".cache"},
        {"DATA", ".local/share"},
    };
    char variable[32];
    const char *given, *home = getenv("HOME");

    *out = 0;
    snprintf(variable, sizeof variable, "XDG_%s_HOME", kind);
    given = getenv(variable);
    /* The XDG specification requires relative paths to be ignored. */
    if (given && *given == '/') {
        snprintf(out, size, "%s/moetop", given);
        return;
    }
    for (size_t i = 0; home && *home && i < sizeof homes / sizeof *homes; i++)
        if (!strcmp(homes[i].kind, kind))
            snprintf(out, size, "%s/%s/moetop", home, homes[i].below);
}

/* Called once: a problem with the folder is reported in one line, and the program continues without
 * it. */
static const char *find_cache(const char *given)
{
    static char path[PATH_MAX];
    struct error e = {0};

    if (given)
        snprintf(path, sizeof path, "%s", given);
    else
        paths_home("CACHE", path, sizeof path);
    if (!*path)
        return NULL;
    if (!given)
        file_make_folders(path, NULL);
    if (cache_check(path, &e) == 0)
        return path;
    log_write(LOG_LEVEL_INFO, "%s", e.text);
    fprintf(stderr, "moetop: %s\n", e.text);
    return NULL;
}

const char *paths_cache(const char *given)
{
    static const char *found;
    static bool asked;

    if (!asked)
        found = find_cache(given);
    asked = true;
    return found;
}

void paths_history(char *out, size_t size)
{
    char folder[PATH_MAX - 16];
    struct stat st;

    out[0] = 0;
    paths_home("STATE", folder, sizeof folder);
    if (!folder[0] || file_make_folders(folder, NULL) < 0)
        return;
    snprintf(out, size, "%s/history", folder);
    if (stat(out, &st) == 0 && !S_ISREG(st.st_mode)) /* readline would wait for a pipe */
        out[0] = 0;
}
