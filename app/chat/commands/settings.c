/* The slash commands about settings: /set, /show and the completion of keys and values. */
#include "app/chat/commands/internal.h"

#include "app/options/config_keep.h"
#include "app/setup/remarks.h"
#include "app/setup/screen/panels_option.h"
#include "app/setup/screen/theme_file.h"
#include "engine/base/size.h"
#include "engine/base/strbuf.h"
#include "engine/file/dtype.h"

#include <limits.h>
#include <string.h>

static int longest_name(void)
{
    size_t most = 0;

    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (option_table[i].place & OPTION_LIVE && strlen(option_table[i].name) > most)
            most = strlen(option_table[i].name);
    return (int)most;
}

/* Appends the pace in force if F2 has changed it; the setting remains `set`. */
static void put_toggled(struct strbuf *b, const struct conversation *c, double set)
{
    double now = conversation_pace(c);

    if (now > 0 && now != set)
        strbuf_printf(b, " (now %g: F2)", now);
    else if (now <= 0 && set > 0)
        strbuf_puts(b, " (now running free: F2)");
}

static void option_line(struct strbuf *b, const struct conversation *c, const struct options *o,
                        const struct option *option)
{
    char value[200], from[200], help[300];
    size_t n = 0;

    option_value(o, option, value, sizeof value);
    option_origin_text(o, option, from, sizeof from);
    for (const char *p = option->help; *p && n + 1 < sizeof help; p++)
        if (*p != '`') /* marks of the documents */
            help[n++] = *p;
    help[n] = 0;
    strbuf_printf(b, "%-*s  %-6s  %s", longest_name(), option->name, value[0] ? value : "-", help);
    if (strcmp(from, "default") != 0)
        strbuf_printf(b, " (%s)", from);
    if (option - option_table == OPTION_ID_pace)
        put_toggled(b, c, o->pace);
    strbuf_putc(b, '\n');
}

static const char *parameters(uint64_t n, char *out, size_t size)
{
    snprintf(out, size, n >= 1000000000 ? "%.2f billion" : "%.2f million",
             (double)n * (n >= 1000000000 ? 1e-9 : 1e-6));
    return out;
}

int chat_show(struct conversation *c, const char *arguments)
{
    struct options *o = conversation_options(c);
    const struct engine_info *info = conversation_info(c);
    const struct telemetry *t = conversation_telemetry(c);
    struct strbuf b = {0};
    char word[64], size[32], all[32], active[32];
    size_t i;

    chat_word_take(&arguments, word, sizeof word);
    if (word[0] && strcmp(word, "system") == 0) {
        const struct transcript *said = conversation_transcript(c);

        strbuf_puts(&b, said->n && said->entries[0].role == ROLE_SYSTEM
                            ? said->entries[0].text
                            : "no system message; /system TEXT sets one");
        return chat_output(c, &b);
    }
    if (word[0]) {
        const struct option *option = options_find(word);

        if (!option) {
            option = options_nearest(word, OPTION_LIVE);
            conversation_say(c, SAY_NOTICE,
                             option ? "there is no setting %s; did you mean %s?"
                                    : "there is no setting %s; /show lists them",
                             word, option ? option->name : "");
            return -1;
        }
        option_line(&b, c, o, option);
        return chat_output(c, &b);
    }
    if (info) {
        const struct hparams *h = &info->model->hp;

        strbuf_printf(&b, "model            %s, %s, %s parameters, %s active\n", info->model->name,
                      dtype_info(info->model->type)->word,
                      parameters(info->model->n_params, all, sizeof all),
                      parameters(info->model->n_params_active, active, sizeof active));
        strbuf_printf(
            &b,
            "shape            %d layers × %d experts, %d chosen a token, hidden %d, expert %d\n",
            h->n_layers, h->n_experts, h->n_experts_used, h->hidden, h->common.ffn.width);
        strbuf_printf(&b, "engine           %d threads, %s kernels, context %d, chunks of %d\n",
                      info->n_threads, info->kernels, info->context, info->ubatch);
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
            option_line(&b, c, o, &option_table[i]);
    return chat_output(c, &b);
}

static int theme_check(const char *name, struct error *e)
{
    struct theme scratch;

    theme_init(&scratch);
    return theme_file_load(&scratch, name, e);
}

/* Options for which options_set accepts any text. */
static int order_check(const struct option *option, const char *value, struct error *e)
{
    struct sampling scratch = {0};

    struct grammar *grammar = NULL;
    int rc;

    if (option == &option_table[OPTION_ID_json_schema] && strcmp(value, "off") != 0) {
        rc = grammar_from_schema(&grammar, value, strlen(value), e);
        grammar_free(grammar);
        return rc;
    }
    if (option == &option_table[OPTION_ID_grammar] && strcmp(value, "off") != 0) {
        rc = grammar_from_gbnf(&grammar, value, strlen(value), e);
        grammar_free(grammar);
        return rc;
    }
    if (option == &option_table[OPTION_ID_panels])
        return panels_option_check(value, e);
    if (option == &option_table[OPTION_ID_samplers])
        return sampling_order_read(&scratch, value, e);
    if (option == &option_table[OPTION_ID_sampler_seq])
        return sampling_order_read_letters(&scratch, value, e);
    return 0;
}

/* A placement is validated by the engine: it is asked first, so that the option never holds a
 * rejected value. */
static int refused(struct conversation *c, const struct option *option, const char *value)
{
    char request[240];

    if (option == &option_table[OPTION_ID_place])
        return conversation_place_told(c, value) < 0;
    if (option != &option_table[OPTION_ID_place_prompt])
        return 0;
    snprintf(request, sizeof request, "prompt %s", value);
    return conversation_place_told(c, request) < 0;
}

int chat_set(struct conversation *c, const char *arguments)
{
    struct options *o = conversation_options(c);
    const struct option *option;
    struct error e = {0};
    char word[64], value[200], remark[240];

    chat_word_take(&arguments, word, sizeof word);
    if (!word[0] || !arguments[0])
        return chat_show(c, word);
    option = options_find(word);
    if (!option || !(option->place & OPTION_LIVE)) {
        const struct option *near = options_nearest(word, OPTION_LIVE);

        if (option)
            conversation_say(c, SAY_NOTICE,
                             "%s cannot be changed while the program runs; start it with --%s",
                             option->name, option->name);
        else
            conversation_say(c, SAY_NOTICE,
                             near ? "there is no setting %s; did you mean %s?"
                                  : "there is no setting %s; /show lists them",
                             word, near ? near->name : "");
        return -1;
    }
    if (refused(c, option, arguments)) /* the error was already shown */
        return -1;
    if ((option == &option_table[OPTION_ID_theme] && theme_check(arguments, &e) < 0) ||
        order_check(option, arguments, &e) < 0 ||
        options_set(o, option, arguments, ORIGIN_CHAT, NULL, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    option_value(o, option, value, sizeof value);
    /* reported when it is in force */
    if (option != &option_table[OPTION_ID_place] && option != &option_table[OPTION_ID_place_prompt])
        conversation_say(c, SAY_NOTICE, "%s is %s now", option->name, value);
    if (remark_option(o, option, remark, sizeof remark))
        conversation_say(c, SAY_NOTICE, "%s", remark);
    conversation_apply(c, option);
    return 0;
}

int chat_set_keep(struct conversation *c, const char *arguments)
{
    const char *rest = arguments;
    const struct option *option;
    struct error e = {0};
    char word[64], path[PATH_MAX];

    chat_word_take(&rest, word, sizeof word);
    if (!word[0]) {
        conversation_say(c, SAY_NOTICE, "/set! KEY VALUE: which setting is to be kept?");
        return -1;
    }
    if (rest[0] && chat_set(c, arguments) < 0)
        return -1;
    option = options_find(word);
    if (!option || !(option->place & OPTION_LIVE)) /* lists the keys */
        return chat_show(c, word);
    if (config_keep(conversation_options(c), option, path, sizeof path, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    conversation_say(c, SAY_NOTICE, "%s is kept in %s", option->name, path);
    return 0;
}

void chat_complete_options(struct conversation *c, const char *line, const char *word, char ***list,
                           size_t *n)
{
    const char *key = chat_blank(line + strcspn(line, " ")), *value = key + strcspn(key, " ");
    const struct option *option;
    char name[64];
    int i;

    /* the key is complete: completes its values */
    if (*value) {
        snprintf(name, sizeof name, "%.*s", (int)(value - key), key);
        option = options_find(name);
        if (!option)
            return;
        chat_complete_values(option, word, list, n);
        if (option->type == OPTION_FLAG) {
            chat_completion_add(list, n, "on", word);
            chat_completion_add(list, n, "off", word);
        }
        return;
    }
    for (i = 0; i < OPTION_COUNT; i++)
        if (option_table[i].place & OPTION_LIVE)
            chat_completion_add(list, n, option_table[i].name, word);
}

void chat_complete_show(struct conversation *c, const char *line, const char *word, char ***list,
                        size_t *n)
{
    if (strchr(chat_blank(line + strcspn(line, " ")), ' '))
        return;
    chat_completion_add(list, n, "system", word);
    chat_complete_options(c, "/set ", word, list, n);
}
