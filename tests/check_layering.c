/* The rules about who may know whom, read from the sources themselves: dependencies point down, one
 * file speaks curses, nobody below app/ prints, exits or reads the environment, and memory comes
 * from engine/base/mem.c. */
#include "tests/support.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Calls fn(path below the root, text) for every .c, .h and .def file below the folders. */
static void each_source(const char *folder, void (*fn)(const char *path, const char *text))
{
    char full[4096];
    struct dirent *d;
    DIR *dir;

    snprintf(full, sizeof full, "%s/%s", support_root(), folder);
    ck_assert_msg((dir = opendir(full)) != NULL, "%s", full);
    while ((d = readdir(dir))) {
        char below[2048];
        const char *dot = strrchr(d->d_name, '.');
        struct stat st;

        if (d->d_name[0] == '.')
            continue;
        snprintf(below, sizeof below, "%s/%s", folder, d->d_name);
        snprintf(full, sizeof full, "%s/%s", support_root(), below);
        if (stat(full, &st) < 0)
            continue;
        if (S_ISDIR(st.st_mode)) {
            each_source(below, fn);
        } else if (dot && (!strcmp(dot, ".c") || !strcmp(dot, ".h") || !strcmp(dot, ".def") ||
                           !strcmp(dot, ".inc"))) {
            char *text = calloc(1, (size_t)st.st_size + 1);
            FILE *f = fopen(full, "r");

            ck_assert(f && fread(text, 1, (size_t)st.st_size, f) == (size_t)st.st_size);
            fclose(f);
            fn(below, text);
            free(text);
        }
    }
    closedir(dir);
}

/* Comments and the insides of strings and characters become spaces, so that words in them count for
 * nothing. In place. */
static void blank_text(char *p)
{
    while (*p) {
        if (p[0] == '/' && p[1] == '*') {
            while (*p && !(p[0] == '*' && p[1] == '/')) {
                if (*p != '\n')
                    *p = ' ';
                p++;
            }
            if (*p) {
                p[0] = p[1] = ' ';
                p += 2;
            }
        } else if (p[0] == '/' && p[1] == '/') {
            while (*p && *p != '\n')
                *p++ = ' ';
        } else if (*p == '"' || *p == '\'') {
            char quote = *p++;

            while (*p && *p != quote && *p != '\n') {
                if (*p == '\\' && p[1])
                    *p++ = ' ';
                *p++ = ' ';
            }
            if (*p)
                p++;
        } else {
            p++;
        }
    }
}

/* ---- includes ---- */

static bool starts(const char *s, const char *with)
{
    return !strncmp(s, with, strlen(with));
}

/* The pure-data headers of the engine that ui/ may see, besides engine/base, and what reads a text
 * without knowing any engine. */
static bool ui_may_see(const char *include)
{
    static const char *const allowed[] = {
        "engine/base/",
        "engine/model/hparams.h",
        "engine/base/message.h",
        "engine/placement/plan.h",
        "engine/run/report/telemetry.h",
        "engine/run/report/messages.h",
        "engine/run/report/trace.h",
        "engine/text/tool_calls.h",
    };

    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (starts(include, allowed[i]))
            return true;
    return false;
}

static bool gpu_may_see(const char *include)
{
    return starts(include, "engine/base/") || starts(include, "engine/device/") ||
           starts(include, "engine/layout/") || starts(include, "engine/model/") ||
           starts(include, "engine/file/");
}

static bool allowed(const char *path, const char *include)
{
    if (starts(path, "app/"))
        return true;
    if (starts(path, "ui/"))
        return starts(include, "ui/") || ui_may_see(include);
    if (starts(path, "gpu/"))
        return starts(include, "gpu/") || gpu_may_see(include);
    return starts(include, "engine/");
}

static int n_includes;

static void check_includes(const char *path, const char *text)
{
    for (const char *p = text; (p = strstr(p, "#include \""));) {
        char include[256];

        p += strlen("#include \"");
        snprintf(include, sizeof include, "%.*s", (int)strcspn(p, "\"\n"), p);
        if (!strchr(include, '/') && strstr(include, ".inc"))
            continue; /* generated tables */
        n_includes++;
        ck_assert_msg(starts(include, "app/") || starts(include, "ui/") ||
                          starts(include, "gpu/") || starts(include, "engine/"),
                      "%s includes \"%s\": includes are rooted in the repository", path, include);
        ck_assert_msg(allowed(path, include), "%s includes %s: this arrow points up", path,
                      include);
    }
}

START_TEST(dependencies_point_down)
{
    each_source("engine", check_includes);
    each_source("gpu", check_includes);
    each_source("ui", check_includes);
    each_source("app", check_includes);
    ck_assert_int_gt(n_includes, 50); /* the test reads something */
}
END_TEST

/* Folders from the lowest to the highest: what stands behind may include what stands before it,
 * never the other way round. */
static const char *const engine_order[] = {
    "engine/base/", "engine/file/",   "engine/layout/",    "engine/model/", "engine/adapter/",
    "engine/text/", "engine/device/", "engine/placement/", "engine/run/",   "engine/train/",
    NULL,
};
static const char *const app_order[] = {
    "app/common/",    "app/options/",   "app/stats/",   "app/fetch/",   "app/lab/",
    "app/setup/",     "app/placement/", "app/connect/", "app/mcp/",     "app/bench/",
    "app/speculate/", "app/doctor/",    "app/chat/",    "app/quality/", "app/serve/",
    "app/headless/",  "app/analyze/",   "app/train/",   "app/",         NULL,
};

/* The floor of a path in an order, -1: on none of its floors. */
static int floor_of(const char *const *order, const char *path)
{
    for (int i = 0; order[i]; i++)
        if (starts(path, order[i]))
            return i;
    return -1;
}

static bool climbs(const char *const *order, const char *path, const char *include)
{
    int from = floor_of(order, path), to = floor_of(order, include);

    return from >= 0 && to > from;
}

static void check_floors(const char *path, const char *text)
{
    for (const char *p = text; (p = strstr(p, "#include \""));) {
        char include[256];

        p += strlen("#include \"");
        snprintf(include, sizeof include, "%.*s", (int)strcspn(p, "\"\n"), p);
        ck_assert_msg(!climbs(engine_order, path, include) && !climbs(app_order, path, include),
                      "%s includes %s: this arrow climbs", path, include);
        ck_assert_msg(!starts(include, "engine/train/") || !starts(path, "engine/") ||
                          starts(path, "engine/train/"),
                      "%s includes %s: nothing in the engine needs what trains", path, include);
        ck_assert_msg(!starts(include, "engine/convert/") || !starts(path, "engine/") ||
                          starts(path, "engine/convert/"),
                      "%s includes %s: nothing in the engine needs what converts", path, include);
    }
}

START_TEST(floors_are_kept)
{
    each_source("engine", check_floors);
    each_source("app", check_floors);
    ck_assert(climbs(engine_order, "engine/file/x.c", "engine/device/device.h"));
    ck_assert(!climbs(engine_order, "engine/run/x.c", "engine/device/device.h"));
    ck_assert(climbs(app_order, "app/common/x.c", "app/modes.h"));
}
END_TEST

/* ---- circles ---- */

#define NODES 1600

/* What includes what: units (x.c and x.h are one), or the folders they stand in. */
static struct graph {
    bool folders;
    char name[NODES][96];
    int n, next[NODES][64], n_next[NODES];
    int state[NODES]; /* 0: not seen, 1: on the way, 2: done */
} graph;

static int node_of(const char *path)
{
    char name[96];
    const char *end = strrchr(path, graph.folders ? '/' : '.');
    bool unit = end && (graph.folders || !strcmp(end, ".c") || !strcmp(end, ".h"));

    snprintf(name, sizeof name, "%.*s", (int)(unit ? end - path : (ptrdiff_t)strlen(path)), path);
    for (int i = 0; i < graph.n; i++)
        if (!strcmp(graph.name[i], name))
            return i;
    ck_assert_int_lt(graph.n, NODES);
    strcpy(graph.name[graph.n], name);
    return graph.n++;
}

static void add_arrows(const char *path, const char *text)
{
    int from = node_of(path);

    for (const char *p = text; (p = strstr(p, "#include \""));) {
        char include[256];
        int to, i = 0;

        p += strlen("#include \"");
        snprintf(include, sizeof include, "%.*s", (int)strcspn(p, "\"\n"), p);
        if (!strchr(include, '/') || (to = node_of(include)) == from)
            continue;
        while (i < graph.n_next[from] && graph.next[from][i] != to)
            i++;
        if (i == graph.n_next[from]) {
            ck_assert_int_lt(i, 64);
            graph.next[from][graph.n_next[from]++] = to;
        }
    }
}

static void follow(int node)
{
    graph.state[node] = 1;
    for (int i = 0; i < graph.n_next[node]; i++) {
        int to = graph.next[node][i];

        ck_assert_msg(graph.state[to] != 1, "a circle: %s includes %s, which leads back to it",
                      graph.name[node], graph.name[to]);
        if (!graph.state[to])
            follow(to);
    }
    graph.state[node] = 2;
}

START_TEST(there_is_no_circle)
{
    static const char *const roots[] = {"engine", "gpu", "ui", "app"};

    memset(&graph, 0, sizeof graph);
    graph.folders = _i;
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        each_source(roots[i], add_arrows);
    ck_assert_int_gt(graph.n, _i ? 15 : 150);
    for (int i = 0; i < graph.n; i++)
        if (!graph.state[i])
            follow(i);
}
END_TEST

static int n_backends;
static char backend_user[256];

static void note_backend(const char *path, const char *text)
{
    if (strstr(text, "#include \"gpu/")) {
        n_backends++;
        snprintf(backend_user, sizeof backend_user, "%s", path);
    }
}

START_TEST(one_file_knows_the_back_ends)
{
    each_source("app", note_backend);
    ck_assert_msg(n_backends <= 1 && (!n_backends || !strcmp(backend_user, "app/devices.c")),
                  "%d files of app/ include gpu/, one is %s", n_backends, backend_user);
}
END_TEST

static int n_curses;

static void note_curses(const char *path, const char *text)
{
    if (strstr(text, "curses.h>") || strstr(text, "ncurses/")) {
        n_curses++;
        ck_assert_msg(starts(path, "ui/"), "%s includes curses", path);
    }
}

START_TEST(curses_is_included_once)
{
    each_source("engine", note_curses);
    each_source("gpu", note_curses);
    each_source("app", note_curses);
    each_source("ui", note_curses);
    ck_assert_int_eq(n_curses, 1);
}
END_TEST

/* ---- calls ---- */

/* Whether text calls name(...): the whole identifier, not a member, not a declaration of ours that
 * merely ends alike. */
static const char *calls(const char *text, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = text; (p = strstr(p, name)); p += n) {
        char before = p == text ? ' ' : p[-1];
        const char *after = p + n + strspn(p + n, " ");

        if (*after != '(' || before == '_' || before == '.' || before == '>' ||
            (before >= '0' && before <= '9') || (before >= 'a' && before <= 'z') ||
            (before >= 'A' && before <= 'Z'))
            continue;
        return p;
    }
    return NULL;
}

static void refuse(const char *path, const char *text, const char *const *names)
{
    char *copy = strdup(text);

    blank_text(copy);
    for (; *names; names++)
        ck_assert_msg(!calls(copy, *names), "%s calls %s", path, *names);
    free(copy);
}

static void check_quiet(const char *path, const char *text)
{
    static const char *const names[] = {
        "printf",     "puts",   "putchar",       "perror", "exit",  "_exit",
        "quick_exit", "getenv", "secure_getenv", "system", "popen", NULL,
    };

    refuse(path, text, names);
}

/* What ends the process or speaks to the user lives in app/. The guard of mem.c may abort: that is
 * an assertion. */
START_TEST(below_app_nobody_prints_exits_or_reads_the_environment)
{
    each_source("engine", check_quiet);
    each_source("gpu", check_quiet);
    each_source("ui", check_quiet);
}
END_TEST

static void check_memory(const char *path, const char *text)
{
    static const char *const names[] = {
        "malloc",    "calloc",        "realloc",        "strdup",       "strndup", "asprintf",
        "vasprintf", "aligned_alloc", "posix_memalign", "reallocarray", NULL};

    if (strcmp(path, "engine/base/mem.c"))
        refuse(path, text, names);
}

START_TEST(memory_comes_from_mem)
{
    each_source("engine", check_memory);
    each_source("gpu", check_memory);
    each_source("ui", check_memory);
    each_source("app", check_memory);
}
END_TEST

/* The test's own reading of C, or the rules above would pass for the wrong reason. */
START_TEST(the_reader_reads_c)
{
    char text[] = "/* malloc(1) */ x = \"malloc(2)\"; // malloc(3)\nmy_malloc(4); a->malloc(5); c "
                  "= '\"'; malloc (6);";

    blank_text(text);
    ck_assert_ptr_eq(calls(text, "malloc"), strstr(text, "malloc (6)"));
    ck_assert_ptr_null(calls(text, "free"));
    ck_assert(!allowed("engine/run/x.c", "ui/canvas.h") &&
              !allowed("ui/x.c", "engine/run/engine.h") &&
              !allowed("gpu/x.c", "app/setup/engine_options.h"));
}
END_TEST

/* Nothing of one machine's paths or of the tools used to write the program belongs into it. */
static void check_names(const char *path, const char *text)
{
    ck_assert_msg(!strstr(text, "/home/"), "%s names a path of one machine", path);
}

START_TEST(no_paths_of_one_machine)
{
    each_source("engine", check_names);
    each_source("gpu", check_names);
    each_source("ui", check_names);
    each_source("app", check_names);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("layering");
    TCase *t = tcase_create("layering");

    tcase_add_test(t, the_reader_reads_c);
    tcase_add_test(t, dependencies_point_down);
    tcase_add_test(t, floors_are_kept);
    tcase_add_loop_test(t, there_is_no_circle, 0, 2);
    tcase_add_test(t, one_file_knows_the_back_ends);
    tcase_add_test(t, curses_is_included_once);
    tcase_add_test(t, below_app_nobody_prints_exits_or_reads_the_environment);
    tcase_add_test(t, memory_comes_from_mem);
    tcase_add_test(t, no_paths_of_one_machine);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
