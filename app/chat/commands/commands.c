/* See commands.h: the table, and what runs, completes and prints it. */
#include "app/chat/commands/commands.h"

#include "app/chat/attach.h"
#include "app/chat/commands/internal.h"
#include "app/chat/commands/measure.h"
#include "app/common/did_you_mean.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"

#include <string.h>

static const struct chat_command table[];
static size_t table_size(void);

static bool has_name(const struct chat_command *k, const char *name)
{
    const char *p = k->others;
    size_t n = strlen(name);

    if (strcmp(k->name, name) == 0)
        return true;
    for (; *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == n && strncmp(p, name, n) == 0)
            return true;
    return false;
}

/* ── /help ── */

/* The command with its arguments, padded to so many columns. */
static const char *help_head(const struct chat_command *k, int columns, char *out, size_t size)
{
    int n = snprintf(out, size, "%s%s%s", k->name, k->arguments[0] ? " " : "", k->arguments),
        width = (int)utf8_width(out, (size_t)n);

    snprintf(out + n, size - (size_t)n, "%*s", width < columns ? columns - width : 0, "");
    return out;
}

static void help_lines(struct strbuf *b, const struct chat_command *k)
{
    char head[64];

    strbuf_printf(b, "%s  %s\n", help_head(k, 19, head, sizeof head), k->help);
}

static int run_help(struct conversation *c, const char *arguments)
{
    struct strbuf b = {0};
    char word[40], name[48];
    size_t i;

    chat_word_take(&arguments, word, sizeof word);
    snprintf(name, sizeof name, "%s%s", word[0] == '/' ? "" : "/", word);
    for (i = 0; i < table_size(); i++) {
        if (word[0] && !has_name(&table[i], name))
            continue;
        help_lines(&b, &table[i]);
    }
    if (!b.len) {
        conversation_say(c, SAY_NOTICE, "there is no command %s; /help lists them", word);
        strbuf_release(&b);
        return -1;
    }
    if (!word[0])
        strbuf_printf(&b, "\nA message that begins with a slash: write two.%s\n",
                      conversation_hooks(c)->keys ? " F1 shows the keys." : "");
    return chat_output(c, &b);
}

static void complete_commands(struct conversation *c, const char *line, const char *word,
                              char ***list, size_t *n)
{
    size_t i;

    for (i = 0; i < table_size(); i++)
        chat_completion_add(list, n, table[i].name, word);
}

static const struct chat_command table[] = {
    {"/help", "/?", "[COMMAND]", "the commands, or what one does", run_help, complete_commands},
    {"/set", "", "KEY VALUE", "change a setting: temp, top-p, pace off, theme light, …", chat_set,
     chat_complete_options},
    {"/set!", "", "KEY [VALUE]", "the same, and keep it in config.yaml for the next time",
     chat_set_keep, chat_complete_options},
    {"/show", "", "[KEY]", "the model, the settings and where they come from; the system message",
     chat_show, chat_complete_show},
    {"/system", "", "[TEXT|none]", "set, show or drop the system message", chat_system, NULL},
    {"/role", "", "[NAME|none]",
     "the system message and settings of roles/NAME.md beside config.yaml, or a list",
     chat_role, chat_complete_roles},
    {"/regen", "/retry", "",
     "answer your last message once more, with another seed; the old answer stays beside it",
     chat_regen, NULL},
    {"/continue", "", "", "let the last answer go on", chat_continue, NULL},
    {"/edit", "", "", "change your last message; what was said stays beside it", chat_edit, NULL},
    {"/undo", "", "", "take your last message and its answer out of the chat", chat_undo, NULL},
    {"/redo", "", "", "bring back what /undo took", chat_redo, NULL},
    {"/branches", "", "[K|A B]",
     "where more than one thing was said; K: go on with that one; A B: compare two", chat_branches,
     NULL},
    {"/compact", "", "[TEXT]",
     "a summary in place of what the model sees no more of the chat; again: edit it; none: drop it",
     chat_compact, NULL},
    {"/token", "", "N [K]",
     "token N of the newest answer: how likely it was, what else was, its experts; K: go on with "
     "number K of that list instead",
     chat_token, NULL},
    {"/clear", "/new", "", "begin a new chat; the old one stays saved", chat_clear, NULL},
    {"/save", "", "[NAME|FILE]",
     "save the chat now, or a copy: NAME among the chats, or a file FILE.json, .md, .html here",
     chat_save, NULL},
    {"/save!", "", "NAME|FILE", "the same, and replace whatever file has that name", chat_save_over,
     NULL},
    {"/load", "/list", "[N|NAME|FILE]",
     "read a saved chat, by its number, name or file; without one: list them", chat_load,
     chat_complete_chats},
    {"/chats", "", "[WORDS]", "the saved chats in which these words were said", chat_chats, NULL},
    {"/rename", "/name", "[N] NAME", "give this chat, or number N of the list, a name", chat_rename,
     NULL},
    {"/delete", "", "N", "delete the saved chat of this number for good", chat_delete, NULL},
    {"/read", "", "FILE",
     "put the text of a file into the input line; @FILE in a message sends it along", chat_read,
     chat_complete_files},
    {"/model", "/models", "[N|NAME]",
     "go on with another model, by its number, name or path; without one: list those at hand",
     chat_model, chat_complete_models},
    {"/lora", "", "[N STRENGTH]",
     "the adapters and the strengths they count with; N STRENGTH: set one for what comes",
     chat_lora, NULL},
    {"/experts-used", "", "[N]",
     "lossy: N experts a token from here on; weight X: those of enough weight; defer N: N a layer "
     "later; undo: all; what it costs is told after the next answer",
     chat_experts_used, NULL},
    {"/kv", "", "[TYPE]",
     "keys and values in f32, f16 or q8_0 from here on (KEYS VALUES: each its own); undo: as at "
     "the "
     "start; what a lossy one costs is told after the next answer",
     chat_kv, NULL},
    {"/place", "", "[NAME|FILE]",
     "switch the placement at once; save NAME: keep the present one; without a name: list them",
     chat_place, chat_complete_place},
    {"/compare", "", "A B …",
     "run your last message under these placements by turns and compare them", chat_compare,
     chat_complete_place},
    {"/profile", "", "[FILE]",
     "which experts this chat uses, layer by layer; FILE: save it as a profile", chat_profile,
     NULL},
    {"/suggest", "", "SIZE",
     "a plan of the experts this chat uses most, within SIZE, judged on its second half",
     chat_suggest, NULL},
    {"/experts", "", "L/E", "which tokens of this chat chose an expert: /experts L17/E9",
     chat_experts, NULL},
    {"/stats", "", "", "figures of this session", chat_stats, NULL},
    {"/log", "", "[N]", "the newest N notes of the program (all that are kept), with their times",
     chat_log, NULL},
    {"/cache", "", "", "what the last message computed again, and why", chat_cache, NULL},
    {"/copy", "", "[N|code|all]",
     "copy the last answer, message N (1: the newest), the last block of code, or the chat",
     chat_copy, chat_complete_copy},
    {"/quit", "/exit /bye", "", "end; the chat is saved", chat_quit, NULL},
};

static size_t table_size(void)
{
    return sizeof table / sizeof table[0];
}

const struct chat_command *chat_commands(size_t *n)
{
    *n = table_size();
    return table;
}

static const struct chat_command *find(const char *line)
{
    char name[40];
    size_t i;

    snprintf(name, sizeof name, "%.*s", (int)strcspn(line, " \t\n"), line);
    for (i = 0; i < table_size(); i++)
        if (has_name(&table[i], name))
            return &table[i];
    return NULL;
}

int chat_command_run(struct conversation *c, const char *line)
{
    const struct chat_command *k = find(line);
    const char *names[sizeof table / sizeof table[0]];
    char *arguments, word[40];
    size_t i, n;
    int near, rc;

    if (!k) {
        for (i = 0; i < table_size(); i++)
            names[i] = table[i].name;
        snprintf(word, sizeof word, "%.*s", (int)strcspn(line, " \t\n"), line);
        near = nearest_word(word, names, table_size());
        conversation_say(c, SAY_NOTICE,
                         near >= 0 ? "there is no command %s; did you mean %s?"
                                   : "there is no command %s; /help lists them",
                         word, near >= 0 ? names[near] : "");
        return -1;
    }
    arguments = mem_string(chat_blank(line + strcspn(line, " \t\n")));
    if (!arguments)
        return -1;
    for (n = strlen(arguments); n && strchr(" \t\n", arguments[n - 1]); n--)
        arguments[n - 1] = 0;
    rc = k->run(c, arguments);
    mem_free(arguments);
    return rc;
}

int chat_submit(struct conversation *c, const char *text)
{
    struct error e = {0};
    char *whole;
    int rc;

    if (text[0] == '/' && text[1] != '/')
        return chat_command_run(c, text);
    text += text[0] == '/';
    if (attach_expand(text, &whole, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    rc = conversation_submit(c, whole ? whole : text);
    mem_free(whole);
    return rc;
}

char **chat_command_complete(struct conversation *c, const char *line, int start, int end)
{
    const struct chat_command *k;
    char **list = NULL, *word, *head;
    size_t n = 0;

    word = mem_string_n(line + start, (size_t)(end - start));
    head = mem_string_n(line, (size_t)end);
    if (word && word[0] == '@')
        chat_complete_files(c, line, word, &list, &n);
    else if (line[0] != '/')
        list = NULL;
    else if (word && head && start == 0)
        complete_commands(c, head, word, &list, &n);
    else if (word && head && (k = find(head)) && k->complete)
        k->complete(c, head, word, &list, &n);
    mem_free(word);
    mem_free(head);
    return list;
}

void chat_commands_print_help(FILE *f)
{
    size_t i;

    fputs("Commands\n", f);
    for (i = 0; i < table_size(); i++) {
        char head[64];

        help_head(&table[i], 19, head, sizeof head);
        fprintf(f, "  %s  %s\n", head, table[i].help);
    }
}

void chat_commands_print_man(FILE *f)
{
    size_t i;

    fputs(
        ".SH COMMANDS\nIn a chat a line that begins with a slash is a command; Tab completes it.\n",
        f);
    for (i = 0; i < table_size(); i++)
        fprintf(f, ".TP\n.B %s %s\n%s%s%s.\n", table[i].name, table[i].arguments, table[i].help,
                table[i].others[0] ? "; also " : "", table[i].others);
}
