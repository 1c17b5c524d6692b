/* See chat_commands.h. */
#include "app/chat_commands.h"

#include "app/chat_measure.h"
#include "app/app.h"
#include "app/nearest.h"
#include "app/place.h"
#include "engine/base/mem.h"
#include "engine/base/size.h"
#include "engine/base/strbuf.h"
#include "engine/file/dtype.h"
#include "ui/keys.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static const struct chat_command table[];
static size_t table_size(void);

static const char *blank(const char *s)
{
    return s + strspn(s, " \t");
}

/* The first word of *s; *s moves behind it and the blanks. */
static void word_take(const char **s, char *out, size_t size)
{
    size_t n = strcspn(*s, " \t\n");

    snprintf(out, size, "%.*s", (int)n, *s);
    *s = blank(*s + n);
}

/* The output of one command, told in one piece. */
static int output(struct conversation *c, struct strbuf *b)
{
    const struct conversation_hooks *h = conversation_hooks(c);

    while (b->len && b->data[b->len - 1] == '\n')
        b->data[--b->len] = 0;
    if (b->failed || !b->data)
        conversation_say(c, SAY_TROUBLE, "out of memory");
    else if (h->say)
        h->say(h->ctx, SAY_OUTPUT, b->data);
    strbuf_release(b);
    return 0;
}

static void add(char ***list, size_t *n, const char *word, const char *begin, const char *tail)
{
    char **grown, *text;

    if (strncmp(word, begin, strlen(begin)) != 0)
        return;
    grown = mem_resize(*list, *n + 2, sizeof **list);
    text = mem_alloc(strlen(word) + strlen(tail) + 1, 1);
    if (grown)
        *list = grown;
    if (!grown || !text) {
        mem_free(text);
        return;
    }
    strcpy(text, word);
    strcat(text, tail);
    grown[(*n)++] = text;
    grown[*n] = NULL;
}

static int busy(struct conversation *c)
{
    if (!conversation_busy(c))
        return 0;
    conversation_say(c, SAY_NOTICE, "not while an answer is being written; Esc stops it");
    return 1;
}

/* ── /help ── */

static void help_lines(struct strbuf *b, const struct chat_command *k)
{
    char head[64];

    snprintf(head, sizeof head, "%s%s%s", k->name, k->arguments[0] ? " " : "", k->arguments);
    strbuf_printf(b, "%-19s  %s\n", head, k->help);
}

static int run_help(struct conversation *c, const char *arguments)
{
    struct strbuf b = {0};
    char word[40];
    size_t i;

    word_take(&arguments, word, sizeof word);
    for (i = 0; i < table_size(); i++) {
        if (word[0] && strcmp(word + (word[0] == '/'), table[i].name + 1) != 0)
            continue;
        help_lines(&b, &table[i]);
    }
    if (!b.len) {
        conversation_say(c, SAY_NOTICE, "there is no command %s; /help lists them", word);
        strbuf_release(&b);
        return -1;
    }
    if (!word[0])
        strbuf_puts(&b, "\nA message that begins with a slash: write two. F1 shows the keys.\n");
    return output(c, &b);
}

static void complete_commands(struct conversation *c, const char *line, const char *word, char ***list, size_t *n)
{
    size_t i;

    for (i = 0; i < table_size(); i++)
        add(list, n, table[i].name, word, "");
}

/* ── /set, /show ── */

static void option_line(struct strbuf *b, const struct options *o, const struct option *option)
{
    char value[200], from[200];

    option_value(o, option, value, sizeof value);
    option_origin_text(o, option, from, sizeof from);
    strbuf_printf(b, "%-15s %-6s  %s (%s)\n", option->name, value[0] ? value : "–", option->help, from);
}

static int run_show(struct conversation *c, const char *arguments)
{
    struct options *o = conversation_options(c);
    const struct engine_info *info = conversation_info(c);
    const struct telemetry *t = conversation_telemetry(c);
    struct strbuf b = {0};
    char word[64], size[32];
    size_t i;

    word_take(&arguments, word, sizeof word);
    if (word[0] && strcmp(word, "system") == 0) {
        const struct transcript *all = conversation_transcript(c);

        strbuf_puts(&b, all->n && all->entries[0].role == ROLE_SYSTEM ? all->entries[0].text : "no system message; /system TEXT sets one");
        return output(c, &b);
    }
    if (word[0]) {
        const struct option *option = options_find(word);

        if (!option) {
            option = options_nearest(word, OPTION_LIVE);
            conversation_say(c, SAY_NOTICE, option ? "there is no setting %s; did you mean %s?" : "there is no setting %s; /show lists them", word,
                             option ? option->name : "");
            return -1;
        }
        option_line(&b, o, option);
        return output(c, &b);
    }
    if (info) {
        const struct hparams *h = &info->model->hp;

        strbuf_printf(&b, "model            %s, %s, %.2f billion parameters, %.2f billion active\n", info->model->name, dtype_info(info->model->type)->word,
                      (double)info->model->n_params * 1e-9, (double)info->model->n_params_active * 1e-9);
        strbuf_printf(&b, "shape            %d layers × %d experts, %d chosen a token, hidden %d, expert %d\n", h->n_layers, h->n_experts, h->n_experts_used,
                      h->hidden, h->expert_ffn);
        strbuf_printf(&b, "engine           %d threads, %s kernels, context %d, chunks of %d\n", info->n_threads, info->kernels, info->context, info->ubatch);
        for (i = 0; t && i < (size_t)t->n_devices && i < DEVICE_MAX; i++) {
            size_format(t->devices[i].weight_bytes + t->devices[i].kv_bytes, size, sizeof size);
            strbuf_printf(&b, "device %zu         %s, holds %s\n", i, info->devices[i].name, size);
        }
        if (t)
            strbuf_printf(&b, "placement        %s\n", t->plan);
    }
    if (conversation_path(c)[0])
        strbuf_printf(&b, "saved in         %s\n", conversation_path(c));
    strbuf_puts(&b, "\n");
    for (i = 0; i < OPTION_COUNT; i++)
        if (option_table[i].place & OPTION_LIVE)
            option_line(&b, o, &option_table[i]);
    return output(c, &b);
}

static int run_set(struct conversation *c, const char *arguments)
{
    struct options *o = conversation_options(c);
    const struct option *option;
    struct error e = {0};
    char word[64], value[200];

    word_take(&arguments, word, sizeof word);
    if (!word[0] || !arguments[0])
        return run_show(c, word);
    option = options_find(word);
    if (!option || !(option->place & OPTION_LIVE)) {
        const struct option *near = options_nearest(word, OPTION_LIVE);

        if (option)
            conversation_say(c, SAY_NOTICE, "%s cannot be changed while the program runs; start it with --%s", option->name, option->name);
        else
            conversation_say(c, SAY_NOTICE, near ? "there is no setting %s; did you mean %s?" : "there is no setting %s; /show lists them", word, near ? near->name : "");
        return -1;
    }
    if (options_set(o, option, arguments, ORIGIN_CHAT, NULL, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    option_value(o, option, value, sizeof value);
    conversation_say(c, SAY_NOTICE, "%s is %s now", option->name, value);
    conversation_apply(c, option);
    return 0;
}

static void complete_themes(const char *word, char ***list, size_t *n)
{
    char path[4096], name[64];
    struct dirent *d;
    struct error e;
    DIR *dir = app_data_path("themes", path, sizeof path, &e) >= 0 ? opendir(path) : NULL;

    while (dir && (d = readdir(dir))) {
        const char *dot = strrchr(d->d_name, '.');

        if (!dot || strcmp(dot, ".yaml") != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(dot - d->d_name), d->d_name);
        add(list, n, name, word, "");
    }
    if (dir)
        closedir(dir);
}

static void complete_place(struct conversation *c, const char *line, const char *word, char ***list, size_t *n);

static void complete_options(struct conversation *c, const char *line, const char *word, char ***list, size_t *n)
{
    const char *key = blank(line + strcspn(line, " ")), *value = key + strcspn(key, " ");
    const struct option *option;
    char name[64], one[80];
    size_t id;
    int i;

    if (*value) {                                                /* the key stands there: its values */
        snprintf(name, sizeof name, "%.*s", (int)(value - key), key);
        option = options_find(name);
        if (!option)
            return;
        id = (size_t)(option - option_table);
        if (id == OPTION_ID_theme)
            complete_themes(word, list, n);
        else if (id == OPTION_ID_place)
            complete_place(c, line, word, list, n);
        for (i = 0; option->type == OPTION_WORD && option_word(option, i, one, sizeof one); i++)
            add(list, n, one, word, "");
        if (option->type == OPTION_FLAG) {
            add(list, n, "on", word, "");
            add(list, n, "off", word, "");
        } else if (option->type != OPTION_WORD && option->words[0] && !strchr(option->words, '|')) {
            add(list, n, option->words, word, "");
        }
        return;
    }
    for (i = 0; i < OPTION_COUNT; i++)
        if (option_table[i].place & OPTION_LIVE)
            add(list, n, option_table[i].name, word, "");
}

static void complete_show(struct conversation *c, const char *line, const char *word, char ***list, size_t *n)
{
    if (strchr(blank(line + strcspn(line, " ")), ' '))
        return;
    add(list, n, "system", word, "");
    complete_options(c, "/set ", word, list, n);
}

/* ── the conversation ── */

static int run_system(struct conversation *c, const char *arguments)
{
    if (busy(c))
        return -1;
    if (!arguments[0])
        return run_show(c, "system");
    if (strcmp(arguments, "none") == 0)
        arguments = "";
    if (conversation_system(c, arguments) < 0)
        return -1;
    conversation_say(c, SAY_NOTICE, arguments[0] ? "the system message holds from your next message on" : "no system message any more");
    return 0;
}

/* Index of the last entry of a role; n when there is none. */
static size_t last_of(const struct transcript *t, enum role role)
{
    size_t i;

    for (i = t->n; i-- > 0;)
        if (t->entries[i].role == role)
            return i;
    return t->n;
}

static int run_regen(struct conversation *c, const char *arguments)
{
    const struct transcript *t = conversation_transcript(c);
    size_t at = last_of(t, ROLE_USER);

    if (busy(c))
        return -1;
    if (at == t->n) {
        conversation_say(c, SAY_NOTICE, "there is no answer to make anew");
        return -1;
    }
    conversation_truncate(c, at + 1);
    return conversation_answer(c, false);
}

static int run_continue(struct conversation *c, const char *arguments)
{
    const struct transcript *t = conversation_transcript(c);

    if (busy(c))
        return -1;
    if (!t->n || t->entries[t->n - 1].role != ROLE_ASSISTANT) {
        conversation_say(c, SAY_NOTICE, "there is no answer to continue");
        return -1;
    }
    return conversation_answer(c, true);
}

static int run_undo(struct conversation *c, const char *arguments)
{
    const struct transcript *t = conversation_transcript(c);
    size_t at = last_of(t, ROLE_USER);

    if (busy(c))
        return -1;
    if (at == t->n) {
        conversation_say(c, SAY_NOTICE, "there is nothing to take back");
        return -1;
    }
    return conversation_truncate(c, at);
}

static int run_edit(struct conversation *c, const char *arguments)
{
    const struct transcript *t = conversation_transcript(c);
    const struct conversation_hooks *h = conversation_hooks(c);
    size_t at = last_of(t, ROLE_USER);
    char *text;

    if (busy(c))
        return -1;
    if (at == t->n || !h->edit) {
        conversation_say(c, SAY_NOTICE, "there is no message to edit");
        return -1;
    }
    text = mem_string(t->entries[at].text);
    if (!text)
        return -1;
    conversation_truncate(c, at);
    h->edit(h->ctx, text);
    mem_free(text);
    return 0;
}

static int run_clear(struct conversation *c, const char *arguments)
{
    if (busy(c))
        return -1;
    conversation_new(c);
    return 0;
}

static int run_save(struct conversation *c, const char *arguments)
{
    const struct transcript *t = conversation_transcript(c);
    struct error e = {0};
    char path[4096];
    size_t n;
    int rc;

    if (!arguments[0]) {
        rc = conversation_save(c, &e);
        snprintf(path, sizeof path, "%s", conversation_path(c));
    } else {
        rc = transcript_named_path(arguments, path, sizeof path, &e);
        n = strlen(path);
        if (rc >= 0 && n > 3 && strcmp(path + n - 3, ".md") == 0) {
            FILE *f = fopen(path, "w");

            rc = f ? transcript_markdown(t, f, &e) : error_set(&e, ERR_IO, "%s cannot be written", path);
            if (f && fclose(f) != 0 && rc >= 0)
                rc = error_set(&e, ERR_IO, "%s could not be written", path);
        } else if (rc >= 0) {
            rc = transcript_save(t, path, &e);
        }
    }
    if (rc < 0)
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
    else
        conversation_say(c, SAY_NOTICE, path[0] ? "saved in %s" : "there is nowhere to save to; /save FILE%s", path);
    return rc < 0 ? -1 : 0;
}

static int run_load(struct conversation *c, const char *arguments)
{
    struct transcript_info *all;
    struct error e = {0};
    struct strbuf b = {0};
    char path[4096];
    size_t n, i;

    if (busy(c))
        return -1;
    if (!arguments[0]) {
        if (transcript_list(&all, &n, &e) < 0) {
            conversation_say(c, SAY_TROUBLE, "%s", e.text);
            return -1;
        }
        for (i = 0; i < n && i < 30; i++)
            strbuf_printf(&b, "%-22s %3zu messages  %s\n", all[i].name, all[i].n, all[i].title);
        if (!n)
            strbuf_puts(&b, "no saved chats yet");
        mem_free(all);
        return output(c, &b);
    }
    if (transcript_named_path(arguments, path, sizeof path, &e) < 0 || conversation_load(c, path, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    return 0;
}

static void complete_chats(struct conversation *c, const char *line, const char *word, char ***list, size_t *n)
{
    struct transcript_info *all;
    struct error e;
    size_t count, i;

    if (transcript_list(&all, &count, &e) < 0)
        return;
    for (i = 0; i < count; i++)
        add(list, n, all[i].name, word, "");
    mem_free(all);
}

static int run_copy(struct conversation *c, const char *arguments)
{
    const struct transcript *t = conversation_transcript(c);
    const struct conversation_hooks *h = conversation_hooks(c);
    size_t at = last_of(t, ROLE_ASSISTANT), len;
    const char *text, *from, *to;
    char *whole = NULL;

    if (at == t->n) {
        conversation_say(c, SAY_NOTICE, "there is no answer to copy");
        return -1;
    }
    text = t->entries[at].text;
    len = strlen(text);
    if (strcmp(arguments, "code") == 0) {                        /* the last block of code */
        for (from = NULL, to = strstr(text, "```"); to; to = strstr(to, "```")) {
            const char *end = strstr(to + 3, "```");

            if (!end)
                break;
            from = to + 3 + strcspn(to + 3, "\n");
            from += *from == '\n';
            len = (size_t)(end - from);
            to = end + 3;
        }
        if (!from) {
            conversation_say(c, SAY_NOTICE, "the answer has no block of code");
            return -1;
        }
        text = from;
    } else if (strcmp(arguments, "all") == 0) {
        FILE *f = open_memstream(&whole, &len);
        struct error e;

        if (!f)
            return -1;
        transcript_print(t, f, &e);
        fclose(f);
        text = whole;
    }
    if (!h->copy || !h->copy(h->ctx, text, len))
        conversation_say(c, SAY_NOTICE, "this terminal takes no copies");
    else
        conversation_say(c, SAY_NOTICE, "%zu bytes given to the terminal's clipboard", len);
    free(whole);
    return 0;
}

static void complete_copy(struct conversation *c, const char *line, const char *word, char ***list, size_t *n)
{
    add(list, n, "code", word, "");
    add(list, n, "all", word, "");
}

/* ── placement ── */

static int run_place(struct conversation *c, const char *arguments)
{
    struct strbuf b = {0};
    char *text;

    if (!arguments[0] || strcmp(arguments, "help") == 0) {
        const struct telemetry *t = conversation_telemetry(c);

        text = place_help_text();
        if (t)
            strbuf_printf(&b, "now: %s\n\n", t->plan);
        strbuf_puts(&b, text ? text : "");
        mem_free(text);
        return output(c, &b);
    }
    return conversation_place(c, arguments);
}

static void complete_place(struct conversation *c, const char *line, const char *word, char ***list, size_t *n)
{
    char *text = place_help_text(), *line_start;

    for (line_start = text; line_start && *line_start;) {
        size_t len = strcspn(line_start, "\n"), name = strcspn(line_start, " \n[:");
        char one[64];

        if (name && line_start[0] != ' ' && !(line_start[name] == ' ' && line_start[name + 1] != ' ' && name < 17)) {
            snprintf(one, sizeof one, "%.*s", (int)name, line_start);
            add(list, n, one, word, "");
        }
        line_start += len + (line_start[len] == '\n');
    }
    mem_free(text);
}

/* ── figures ── */

static int run_stats(struct conversation *c, const char *arguments)
{
    const struct stats *stats = conversation_stats(c);
    struct strbuf b = {0};
    char *text = NULL;
    size_t len = 0;
    FILE *f;

    if (!stats) {
        conversation_say(c, SAY_NOTICE, "the model is still loading");
        return -1;
    }
    f = open_memstream(&text, &len);
    if (!f)
        return -1;
    stats_print(stats, f);
    fclose(f);
    strbuf_put(&b, text, len);
    free(text);
    return output(c, &b);
}

/* L17/E9, also l17 e9 and 17 9. */
static int run_experts(struct conversation *c, const char *arguments)
{
    int layer = -1, expert = -1, end = 0;
    const char *s = blank(arguments);

    s += *s == 'L' || *s == 'l';
    if (sscanf(s, "%d%n", &layer, &end) == 1) {
        s += end;
        s += strspn(s, " \t/,.");
        s += *s == 'E' || *s == 'e';
        end = 0;
        if (sscanf(s, "%d%n", &expert, &end) == 1 && !*blank(s + end))
            return conversation_expert(c, layer, expert);
    }
    conversation_say(c, SAY_TROUBLE, "/experts L17/E9: which of this chat's tokens chose expert 9 of layer 17 (both counted from 0)");
    return -1;
}

static int run_quit(struct conversation *c, const char *arguments)
{
    conversation_quit(c);
    return 0;
}

static const struct chat_command table[] = {
    {"/help", "/?", "[COMMAND]", "the commands, or what one does", run_help, complete_commands},
    {"/set", "", "KEY VALUE", "change a setting: temp, top-p, pace off, theme, …", run_set, complete_options},
    {"/show", "", "[KEY]", "the model, the settings and where they come from; the system message", run_show, complete_show},
    {"/system", "", "[TEXT|none]", "set, show or drop the system message", run_system, NULL},
    {"/regen", "/retry", "", "answer your last message anew", run_regen, NULL},
    {"/continue", "", "", "let the last answer go on", run_continue, NULL},
    {"/edit", "", "", "take your last message back into the input line", run_edit, NULL},
    {"/undo", "", "", "drop your last message and its answer", run_undo, NULL},
    {"/clear", "/new", "", "begin a new chat; the old one stays saved", run_clear, NULL},
    {"/save", "", "[FILE]", "save the chat now, or a copy of it: NAME, FILE.json, FILE.md", run_save, NULL},
    {"/load", "/list", "[NAME|FILE]", "read a saved chat; without a name: list them", run_load, complete_chats},
    {"/place", "", "[NAME|FILE]", "switch the placement at once; without a name: list the strategies", run_place, complete_place},
    {"/compare", "", "A B …", "run your last message under these placements by turns and compare them", chat_compare, complete_place},
    {"/profile", "", "[FILE]", "which experts this chat uses, layer by layer; FILE: save it as a profile", chat_profile, NULL},
    {"/suggest", "", "SIZE", "a plan of the experts this chat uses most, within SIZE, judged on its second half", chat_suggest, NULL},
    {"/experts", "", "L/E", "which tokens of this chat chose an expert: /experts L17/E9", run_experts, NULL},
    {"/stats", "", "", "figures of this session", run_stats, NULL},
    {"/copy", "", "[code|all]", "copy the last answer, its last block of code, or the chat", run_copy, complete_copy},
    {"/quit", "/exit /bye", "", "end; the chat is saved", run_quit, NULL},
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
        conversation_say(c, SAY_NOTICE, near >= 0 ? "there is no command %s; did you mean %s?" : "there is no command %s; /help lists them", word,
                         near >= 0 ? names[near] : "");
        return -1;
    }
    arguments = mem_string(blank(line + strcspn(line, " \t\n")));
    if (!arguments)
        return -1;
    for (n = strlen(arguments); n && strchr(" \t\n", arguments[n - 1]); n--)
        arguments[n - 1] = 0;
    rc = k->run(c, arguments);
    mem_free(arguments);
    return rc;
}

char **chat_command_complete(struct conversation *c, const char *line, int start, int end)
{
    const struct chat_command *k;
    char **list = NULL, *word, *head;
    size_t n = 0;

    if (line[0] != '/')
        return NULL;
    word = mem_string_n(line + start, (size_t)(end - start));
    head = mem_string_n(line, (size_t)end);
    if (word && head && start == 0)
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

        snprintf(head, sizeof head, "%s%s%s", table[i].name, table[i].arguments[0] ? " " : "", table[i].arguments);
        fprintf(f, "  %-16s %s%s\n", head, strlen(head) > 16 ? " " : "", table[i].help);
    }
}

void chat_commands_print_man(FILE *f)
{
    size_t i;

    fputs(".SH COMMANDS\nIn a chat a line that begins with a slash is a command; Tab completes it.\n", f);
    for (i = 0; i < table_size(); i++)
        fprintf(f, ".TP\n.B %s %s\n%s%s%s.\n", table[i].name, table[i].arguments, table[i].help, table[i].others[0] ? "; also " : "", table[i].others);
}
