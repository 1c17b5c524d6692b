/* /role: system messages with names, each a file of the user's folder of roles. Thread: the UI
 * thread. A file may begin with settings, a line each between two lines of three dashes. */
#include "app/chat/commands/internal.h"

#include "app/common/paths.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define ENDING ".md"
#define LONGEST (64 * 1024) /* bytes of a role file */

static void folder_name(char *out, size_t size)
{
    char home[PATH_MAX];

    paths_home("CONFIG", home, sizeof home);
    snprintf(out, size, "%s/roles", home);
}

static int is_role(const struct dirent *d)
{
    return d->d_name[0] != '.' && path_stem(d->d_name, ENDING);
}

/* Calls take for each role's name, in alphabetical order; returns their number. */
static int each_role(void (*take)(void *ctx, const char *name), void *ctx)
{
    char folder[PATH_MAX + 8];
    struct dirent **all;
    int n;

    folder_name(folder, sizeof folder);
    if ((n = scandir(folder, &all, is_role, alphasort)) < 0)
        return 0;
    for (int i = 0; i < n; i++) {
        all[i]->d_name[path_stem(all[i]->d_name, ENDING)] = 0;
        take(ctx, all[i]->d_name);
        free(all[i]);
    }
    free(all);
    return n;
}

static void list_take(void *ctx, const char *name)
{
    strbuf_printf(ctx, "%s\n", name);
}

static int list(struct conversation *c)
{
    char folder[PATH_MAX + 8];
    struct strbuf b = {0};
    int n = each_role(list_take, &b);

    folder_name(folder, sizeof folder);
    strbuf_printf(&b,
                  n ? "/role NAME makes one of them the system message; they lie in %s"
                    : "no roles yet: each is a file %s/NAME.md with a system message",
                  folder);
    return chat_output(c, &b);
}

/* The file's text, mem_*; NULL with a notice. */
static char *role_read(struct conversation *c, const char *name)
{
    char folder[PATH_MAX + 8], path[PATH_MAX + 300], *text = NULL;
    FILE *f = NULL;
    size_t n;

    folder_name(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/%.200s" ENDING, folder, name);
    if (strchr(name, '/') || name[0] == '.' || !(f = fopen(path, "r"))) {
        conversation_say(c, SAY_NOTICE, "there is no role %s; /role lists them", name);
        return NULL;
    }
    if (!(text = mem_alloc(LONGEST + 1, 1))) {
        fclose(f);
        return NULL;
    }
    n = fread(text, 1, LONGEST, f);
    if (ferror(f) || !feof(f) || memchr(text, 0, n)) {
        conversation_say(c, SAY_TROUBLE, "%s: %s", path,
                         ferror(f)      ? strerror(errno)
                         : n == LONGEST ? "longer than a role may be (64 KiB)"
                                        : "this is no text");
        mem_free(text);
        text = NULL;
    }
    fclose(f);
    return text;
}

/* Applies "temp: 0.2" like /set. */
static int setting_take(struct conversation *c, const char *line, size_t n)
{
    char key[64], order[300];
    size_t k = strcspn(line, ":");

    if (k >= n || k >= sizeof key) {
        conversation_say(c, SAY_TROUBLE, "'%.*s' is no setting of a role: KEY: VALUE",
                         (int)(n < 60 ? n : 60), line);
        return -1;
    }
    snprintf(key, sizeof key, "%.*s", (int)k, line);
    k += 1 + (line[k + 1] == ' ');
    snprintf(order, sizeof order, "%s %.*s", key, (int)(n > k ? n - k : 0), line + k);
    return chat_set(c, order);
}

/* Applies the settings at the head; returns the text after them, NULL: one was refused (with a
 * notice). */
static const char *settings_take(struct conversation *c, const char *text)
{
    if (strncmp(text, "---\n", 4) != 0)
        return text;
    for (text += 4; *text && strncmp(text, "---", 3) != 0;) {
        size_t n = strcspn(text, "\n");

        if (n && setting_take(c, text, n) < 0)
            return NULL;
        text += n + (text[n] == '\n');
    }
    text += strcspn(text, "\n");
    return text + strspn(text, "\n");
}

int chat_role(struct conversation *c, const char *arguments)
{
    const char *message;
    char *text;
    int rc;

    if (chat_busy(c))
        return -1;
    if (!arguments[0])
        return list(c);
    if (strcmp(arguments, "none") == 0)
        return chat_system(c, "none");
    if (!(text = role_read(c, arguments)))
        return -1;
    message = settings_take(c, text);
    for (size_t n = strlen(text); n && text[n - 1] == '\n';)
        text[--n] = 0;
    rc = !message ? -1 : message[0] ? chat_system(c, message) : 0;
    mem_free(text);
    return rc;
}

struct completing {
    const char *word;
    char ***list;
    size_t *n;
};

static void complete_take(void *ctx, const char *name)
{
    const struct completing *k = ctx;

    chat_completion_add(k->list, k->n, name, k->word);
}

void chat_complete_roles(struct conversation *c, const char *line, const char *word, char ***list,
                         size_t *n)
{
    struct completing k = {word, list, n};

    each_role(complete_take, &k);
}
