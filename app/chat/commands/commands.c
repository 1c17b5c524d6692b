/* See commands.h: the table, and the code that runs, completes and prints it. */
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
        strbuf_printf(&b, "\nTo send a message that begins with a slash, write two.%s\n",
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
    {"/help", "/?", "[COMMAND]", "list the commands, or explain one", run_help, complete_commands},
    {"/set", "", "KEY VALUE", "change a setting: temp, top-p, pace off, theme light, …", chat_set,
     chat_complete_options},
    {"/set!", "", "KEY [VALUE]", "like /set, and save it in config.yaml", chat_set_keep,
     chat_complete_options},
    {"/show", "", "[KEY]", "the model, the settings and where they come from; the system message",
     chat_show, chat_complete_show},
    {"/system", "", "[TEXT|none]", "set, show or remove the system message", chat_system, NULL},
    {"/role", "", "[NAME|none]",
     "use the system message and settings of roles/NAME.md beside config.yaml; no NAME: list them",
     chat_role, chat_complete_roles},
    {"/regen", "/retry", "",
     "answer your last message again with another seed; the old answer is kept as a branch",
     chat_regen, NULL},
    {"/continue", "", "", "continue the last answer", chat_continue, NULL},
    {"/edit", "", "", "edit your last message; the old one is kept as a branch", chat_edit, NULL},
    {"/undo", "", "", "remove your last message and its answer from the chat", chat_undo, NULL},
    {"/redo", "", "", "restore what /undo removed", chat_redo, NULL},
    {"/branches", "", "[K|A B]",
     "list the branches of the chat; K: continue with branch K; A B: compare two", chat_branches,
     NULL},
    {"/compact", "", "[TEXT]",
     "summarise the part that no longer fits the context; again: edit it; none: remove it",
     chat_compact, NULL},
    {"/token", "", "N [K]",
     "token N of the newest answer: its probability, the alternatives, its experts; K: continue "
     "from alternative K",
     chat_token, NULL},
    {"/lens", "", "N [WHAT]",
     "what made token N of the newest answer: what each layer would say, and what it added; swap: "
     "what it would be with runner-up experts; attention [L3.H5]: where that head looked, all of "
     "them by default, coloured in the answer",
     chat_lens, NULL},
    {"/clear", "/new", "", "start a new chat; the old one stays saved", chat_clear, NULL},
    {"/save", "", "[NAME|FILE]",
     "save the chat now, or a copy: as chat NAME, or as FILE.json, .md or .html here", chat_save,
     NULL},
    {"/save!", "", "NAME|FILE", "like /save, but overwrite an existing file", chat_save_over, NULL},
    {"/load", "/list", "[N|NAME|FILE]",
     "load a saved chat by number, name or file; without one: list them", chat_load,
     chat_complete_chats},
    {"/chats", "", "[WORDS]", "search the saved chats for these words", chat_chats, NULL},
    {"/rename", "/name", "[N] NAME", "give this chat, or number N of the list, a name", chat_rename,
     NULL},
    {"/delete", "", "N", "delete the saved chat of this number for good", chat_delete, NULL},
    {"/read", "", "FILE",
     "insert the text of a file into the input line; @FILE in a message attaches it", chat_read,
     chat_complete_files},
    {"/model", "/models", "[N|NAME]",
     "switch to another model by number, name or path; without one: list those available",
     chat_model, chat_complete_models},
    {"/mcp", "/tools", "[NAME|ask]",
     "list the tool servers of --mcp and their tools; NAME: restart that one; ask: ask again about "
     "tools allowed with a",
     chat_mcp, chat_complete_mcp},
    {"/lora", "", "[N STRENGTH]",
     "list the LoRA adapters and their scales; N STRENGTH: set the scale of one from here on",
     chat_lora, NULL},
    {"/experts-used", "", "[N]",
     "lossy: N experts per token from here on; weight X: skip those below X; defer N: add N one "
     "layer later; undo: all; the loss is shown after the next answer",
     chat_experts_used, NULL},
    {"/expert", "", "[EDIT]",
     "edit which experts are chosen: off L17/E9, on L17/E9, weight L17/E9 0.5, only L17/E9,E3, "
     "swap L17 E3 E9; on: undo all; without one: list the edits; the next answer is compared with "
     "the one without them",
     chat_expert_edit, NULL},
    {"/kv", "", "[TYPE]",
     "KV cache type from here on: f32, f16 or q8_0 (KEYS VALUES: one for each); undo: as at the "
     "start; the loss of a lossy type is shown after the next answer",
     chat_kv, NULL},
    {"/vote", "", "WHICH [WHY]",
     "with --beside: keep which of the two answers is better (1, 2, both, neither) as JSON",
     chat_vote, NULL},
    {"/routing-trace", "", "FILE",
     "record which experts every token chooses from here on (.jsonl or .safetensors); scores FILE, "
     "logprobs FILE: with the routers' scores, the tokens' log-probabilities, too; off: end the "
     "trace; without a name: whether one is recorded",
     chat_routing_trace, chat_complete_files},
    {"/place", "", "[NAME|FILE]",
     "switch the placement; prompt NAME: that of prompts, prompt same: the tokens' again; save "
     "NAME: "
     "save the current one; without a name: list them",
     chat_place, chat_complete_place},
    {"/compare", "", "A B …",
     "run your last message under these placements in turn and compare them", chat_compare,
     chat_complete_place},
    {"/profile", "", "[FILE]",
     "count the experts this chat uses, by layer; FILE: save that as a profile", chat_profile,
     NULL},
    {"/suggest", "", "SIZE",
     "suggest a plan: the experts this chat uses most, within SIZE, tested on its second half",
     chat_suggest, NULL},
    {"/experts", "", "L/E", "which tokens of this chat chose an expert: /experts L17/E9",
     chat_experts, NULL},
    {"/stats", "", "", "figures of this session", chat_stats, NULL},
    {"/log", "", "[N]", "the newest N log lines (default: all that are kept), with their times",
     chat_log, NULL},
    {"/cache", "", "", "which tokens the last message computed again, and why", chat_cache, NULL},
    {"/doctor", "", "", "what of this machine costs speed, with remedies; it measures for seconds",
     chat_doctor, NULL},
    {"/copy", "", "[N|code|all]",
     "copy the last answer, message N (1: the newest), the last block of code, or the chat",
     chat_copy, chat_complete_copy},
    {"/quit", "/exit /bye", "", "quit; the chat is saved", chat_quit, NULL},
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
