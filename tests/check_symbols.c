/* Who needs whom, read from the symbols of the objects: what include lines cannot show. Below app/
 * no folders call each other in a circle, nor do the folders of one area of app/; and inside a
 * folder few files do. */
#include "tests/support.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 900
#define SLOTS (1 << 16) /* a power of two, several times the symbols there are */

/* A circle of files in one folder is one thing in several files: more than so many is too much for
 * a reader. */
#define CIRCLE 5

/* The fullest folders, in .c files. */
#define FULL 25

static struct graph {
    int n;
    char name[FILES][96]; /* engine/run/turn, or a folder */
    int folder[FILES];    /* of a file: its node in `folders`; of a folder: that of its area */
    /* a symbol behind the arrow from a to b, NULL: there is none */
    const char *arrow[FILES][FILES];
} files, folders;

static struct symbol {
    const char *name;
    int file;
} defined[SLOTS];

struct object {
    const Elf64_Sym *symbols;
    size_t n;
    const char *names;
};

static char build[4096];

static int node_of(struct graph *g, const char *name)
{
    for (int i = 0; i < g->n; i++)
        if (strcmp(g->name[i], name) == 0)
            return i;
    ck_assert_msg(g->n < FILES && strlen(name) < sizeof g->name[0], "%s", name);
    strcpy(g->name[g->n], name);
    return g->n++;
}

static struct symbol *slot_of(const char *name)
{
    unsigned h = 2166136261u;

    for (const char *p = name; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    while (defined[h & (SLOTS - 1)].name && strcmp(defined[h & (SLOTS - 1)].name, name) != 0)
        h++;
    return &defined[h & (SLOTS - 1)];
}

/* The symbol table of an object of this machine; it stays mapped. */
static struct object read_object(const char *path)
{
    int fd = open(path, O_RDONLY);
    struct object o = {0};
    struct stat st;
    char *bytes;

    ck_assert_msg(fd >= 0 && fstat(fd, &st) == 0, "%s", path);
    bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    ck_assert_msg(bytes != MAP_FAILED && memcmp(bytes, ELFMAG, SELFMAG) == 0, "%s", path);

    const Elf64_Ehdr *head = (const Elf64_Ehdr *)bytes;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(bytes + head->e_shoff);

    for (int i = 0; i < head->e_shnum; i++)
        if (sections[i].sh_type == SHT_SYMTAB) {
            o.symbols = (const Elf64_Sym *)(bytes + sections[i].sh_offset);
            o.n = sections[i].sh_size / sizeof *o.symbols;
            o.names = bytes + sections[sections[i].sh_link].sh_offset;
        }
    return o;
}

static struct object objects[FILES];

/* Kernels of another architecture: the Makefile leaves NAME_SET.c out. */
static bool is_foreign(const char *name)
{
#if defined(__x86_64__)
    static const char *const sets[] = {"_neon", "_dotprod", "_i8mm"};
#else
    static const char *const sets[] = {"_avx2", "_avxvnni", "_avx512"};
#endif
    const char *set = strrchr(name, '_');

    for (size_t i = 0; set && i < sizeof sets / sizeof *sets; i++)
        if (strcmp(set, sets[i]) == 0)
            return true;
    return false;
}

/* The objects of the sources below a folder, wherever those still are: an old build leaves more. */
static void take_objects(const char *folder)
{
    char path[4600];
    struct dirent *d;
    DIR *dir;

    snprintf(path, sizeof path, "%s/%s", support_root(), folder);
    ck_assert_msg((dir = opendir(path)) != NULL, "%s", path);
    while ((d = readdir(dir))) {
        size_t len = strlen(d->d_name);
        char name[400];
        struct stat st;

        if (d->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", folder, d->d_name);
        snprintf(path, sizeof path, "%s/%s", support_root(), name);
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
            take_objects(name);
        } else if (len > 2 && strcmp(d->d_name + len - 2, ".c") == 0) {
            int node;

            name[strlen(name) - 2] = 0;
            if (is_foreign(name))
                continue;
            node = node_of(&files, name);
            files.folder[node] = node_of(&folders, folder);
            snprintf(path, sizeof path, "%s/%s.o", build, name);
            objects[node] = read_object(path);
        }
    }
    closedir(dir);
}

/* The first folder of the same area: app/serve and all below it are one. */
static int area_of(int folder)
{
    const char *name = folders.name[folder], *slash = strchr(name, '/');
    size_t n = slash ? (size_t)(slash - name) + 1 + strcspn(slash + 1, "/") : strlen(name);

    for (int i = 0; i < folder; i++)
        if (strncmp(folders.name[i], name, n) == 0 &&
            (!folders.name[i][n] || folders.name[i][n] == '/') && (slash || !folders.name[i][n]))
            return i;
    return folder;
}

static bool is_ours(const Elf64_Sym *s, const char *name)
{
    return ELF64_ST_BIND(s->st_info) != STB_LOCAL && *name && strncmp(name, "__", 2) != 0;
}

static void read_build(void)
{
    static const char *const roots[] = {"engine", "ui", "gpu", "app"};
    const char *given = getenv("CHECK_BUILD");

    snprintf(build, sizeof build, "%s%s%s", given && given[0] == '/' ? "" : support_root(),
             given && given[0] == '/' ? "" : "/", given ? given : "build/release");
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        take_objects(roots[i]);
    for (int i = 0; i < folders.n; i++)
        folders.folder[i] = area_of(i);
    for (int f = 0; f < files.n; f++)
        for (size_t i = 0; i < objects[f].n; i++) {
            const Elf64_Sym *s = &objects[f].symbols[i];
            const char *name = objects[f].names + s->st_name;

            if (s->st_shndx != SHN_UNDEF && is_ours(s, name))
                *slot_of(name) = (struct symbol){name, f};
        }
    for (int f = 0; f < files.n; f++)
        for (size_t i = 0; i < objects[f].n; i++) {
            const Elf64_Sym *s = &objects[f].symbols[i];
            const char *name = objects[f].names + s->st_name;
            const struct symbol *to;

            if (s->st_shndx != SHN_UNDEF || !is_ours(s, name) || !(to = slot_of(name))->name ||
                to->file == f)
                continue;
            files.arrow[f][to->file] = name;
            if (files.folder[f] != files.folder[to->file])
                folders.arrow[files.folder[f]][files.folder[to->file]] = name;
        }
    ck_assert_int_gt(files.n, 400);
}

/* ---- circles ---- */

static struct search {
    const struct graph *graph;
    bool within; /* arrows inside a folder (of folders: an area) alone */
    int seen[FILES], low[FILES], stack[FILES], depth, clock;
    bool waits[FILES];
    void (*found)(const struct graph *g, const int *nodes, int n);
} search;

static bool leads(int a, int b)
{
    return search.graph->arrow[a][b] &&
           (!search.within || search.graph->folder[a] == search.graph->folder[b]);
}

/* Tarjan's: each group of nodes that reach each other, to found(). */
static void visit(int a)
{
    int first = search.depth;

    search.seen[a] = search.low[a] = ++search.clock;
    search.stack[search.depth++] = a;
    search.waits[a] = true;
    for (int b = 0; b < search.graph->n; b++) {
        if (!leads(a, b))
            continue;
        if (!search.seen[b])
            visit(b);
        if (search.waits[b] && search.low[b] < search.low[a])
            search.low[a] = search.low[b];
    }
    if (search.low[a] != search.seen[a])
        return;
    for (int i = first; i < search.depth; i++)
        search.waits[search.stack[i]] = false;
    search.found(search.graph, search.stack + first, search.depth - first);
    search.depth = first;
}

static void search_circles(const struct graph *g, bool within,
                           void (*found)(const struct graph *g, const int *nodes, int n))
{
    memset(&search, 0, sizeof search);
    search.graph = g;
    search.within = within;
    search.found = found;
    for (int i = 0; i < g->n; i++)
        if (!search.seen[i])
            visit(i);
}

/* libcheck ends a suite whose message is longer than twice this. */
#define MESSAGE 4000

/* One arrow as a line of a failure's message; false: the message is full. */
static bool add_arrow(char *text, const struct graph *g, int a, int b)
{
    size_t len = strlen(text);

    if (len + 400 > MESSAGE) {
        snprintf(text + len, MESSAGE - len, "\n  and more");
        return false;
    }
    snprintf(text + len, MESSAGE - len, "\n  %s needs %s of %s", g->name[a], g->arrow[a][b],
             g->name[b]);
    return true;
}

/* The arrows among these nodes, a line each. */
static char *picture(const struct graph *g, const int *nodes, int n)
{
    static char text[MESSAGE];

    text[0] = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            if (g->arrow[nodes[i]][nodes[k]] && !add_arrow(text, g, nodes[i], nodes[k]))
                return text;
    return text;
}

/* The shortest circle through a node, into circle[]; returns its length, 0: there is none. */
static int shortest_circle(const struct graph *g, int start, int *circle)
{
    int before[FILES], queue[FILES], head = 0, tail = 0;

    for (int i = 0; i < g->n; i++)
        before[i] = -1;
    queue[tail++] = start;
    while (head < tail) {
        int a = queue[head++], n = 0;

        if (g->arrow[a][start]) {
            for (int b = a; b != start; b = before[b])
                n++;
            for (int b = a, i = n; i >= 0; b = before[b], i--)
                circle[i] = b;
            return n + 1;
        }
        for (int b = 0; b < g->n; b++)
            if (g->arrow[a][b] && b != start && before[b] < 0) {
                before[b] = a;
                queue[tail++] = b;
            }
    }
    return 0;
}

static bool below_app(const char *name)
{
    return strncmp(name, "app", 3) != 0;
}

/* The whole group is dozens of arrows; what a reader has to break is the shortest circle. */
static void no_circle_below_app(const struct graph *g, const int *nodes, int n)
{
    int circle[FILES], shortest[FILES], least = 0;
    char text[MESSAGE] = "";

    for (int i = 0; i < n && n > 1; i++) {
        int len = below_app(g->name[nodes[i]]) ? shortest_circle(g, nodes[i], circle) : 0;

        if (len && (!least || len < least)) {
            least = len;
            memcpy(shortest, circle, (size_t)len * sizeof *circle);
        }
    }
    for (int i = 0; i < least; i++)
        if (!add_arrow(text, g, shortest[i], shortest[(i + 1) % least]))
            break;
    ck_assert_msg(!least, "%d folders call each other, for one:%s", n, text);
}

START_TEST(folders_do_not_call_each_other)
{
    read_build();
    search_circles(&folders, false, no_circle_below_app);
}
END_TEST

static void no_circle_in_an_area(const struct graph *g, const int *nodes, int n)
{
    ck_assert_msg(n == 1, "%d folders of one area call each other:%s", n, picture(g, nodes, n));
}

START_TEST(folders_of_an_area_do_not_call_each_other)
{
    read_build();
    ck_assert_int_eq(folders.folder[node_of(&folders, "app/serve/http")],
                     folders.folder[node_of(&folders, "app/serve")]);
    ck_assert_int_ne(folders.folder[node_of(&folders, "app/setup")],
                     folders.folder[node_of(&folders, "app/serve")]);
    search_circles(&folders, true, no_circle_in_an_area);
}
END_TEST

static void small_circle(const struct graph *g, const int *nodes, int n)
{
    ck_assert_msg(n <= CIRCLE, "%d files of %s call each other, %d may:%s", n,
                  folders.name[g->folder[nodes[0]]], CIRCLE, picture(g, nodes, n));
}

START_TEST(few_files_call_each_other)
{
    read_build();
    search_circles(&files, true, small_circle);
}
END_TEST

START_TEST(no_folder_is_overfull)
{
    int n[FILES] = {0};

    read_build();
    for (int i = 0; i < files.n; i++)
        n[files.folder[i]]++;
    for (int i = 0; i < folders.n; i++)
        ck_assert_msg(n[i] <= FULL, "%s has %d .c files, %d may stand there", folders.name[i], n[i],
                      FULL);
}
END_TEST

/* ---- the search itself ---- */

static int largest;

static void keep_largest(const struct graph *g, const int *nodes, int n)
{
    (void)g, (void)nodes;
    largest = n > largest ? n : largest;
}

START_TEST(a_circle_is_found)
{
    static const int arrows[][2] = {{0, 1}, {1, 2}, {2, 0}, {2, 3}, {3, 4}, {4, 3}, {5, 0}};

    files.n = 6;
    for (size_t i = 0; i < sizeof arrows / sizeof *arrows; i++)
        files.arrow[arrows[i][0]][arrows[i][1]] = "x";
    search_circles(&files, true, keep_largest);
    ck_assert_int_eq(largest, 3);
    files.folder[1] = 1; /* inside a folder alone there is only the one of 3 and 4 */
    largest = 0;
    search_circles(&files, true, keep_largest);
    ck_assert_int_eq(largest, 2);

    int circle[FILES];

    ck_assert_int_eq(shortest_circle(&files, 0, circle), 3);
    ck_assert(circle[0] == 0 && circle[1] == 1 && circle[2] == 2);
    ck_assert_int_eq(shortest_circle(&files, 3, circle), 2);
    ck_assert_int_eq(shortest_circle(&files, 5, circle), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("symbols");
    TCase *t = tcase_create("symbols");

    tcase_add_test(t, a_circle_is_found);
    tcase_add_test(t, folders_do_not_call_each_other);
    tcase_add_test(t, folders_of_an_area_do_not_call_each_other);
    tcase_add_test(t, few_files_call_each_other);
    tcase_add_test(t, no_folder_is_overfull);
    suite_add_tcase(s, t);
    return support_run(s);
}
