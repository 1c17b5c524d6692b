/* See key_bar.h. */
#include "ui/screen/key_bar.h"

#include "ui/glyph.h"
#include "ui/panels/panel.h"

#include <stdio.h>
#include <string.h>

/* In the order of the table of keys; plans use their names. */
static const struct {
    enum key_context context;
    enum action action;
    const char *word;
} words[] = {
    {KEYS_CHAT, ACTION_HELP, "help"},         {KEYS_CHAT, ACTION_PACE, "pace"},
    {KEYS_CHAT, ACTION_HEAT_MODE, "mode"},    {KEYS_CHAT, ACTION_ZOOM_EXPERTS, "map"},
    {KEYS_CHAT, ACTION_SEARCH, "find"},       {KEYS_CHAT, ACTION_PRESET, "panels"},
    {KEYS_PANEL, ACTION_FOCUS_NEXT, "next"},
    {KEYS_PANEL, ACTION_FOCUS_LEAVE, "back"}, {KEYS_PANEL, ACTION_UP, "cursor"},
    {KEYS_PANEL, ACTION_CHOOSE, "choose"},    {KEYS_PANEL, ACTION_ZOOM, "whole screen"},
    {KEYS_PANEL, ACTION_MODE, "mode"},        {KEYS_PANEL, ACTION_HIDE, "hide"},
    {KEYS_PANEL, ACTION_EXPLAIN, "explain"},  {KEYS_SERVER, ACTION_QUIT, "quit"},
    {KEYS_TRAINING, ACTION_QUIT, "quit"},
};

/* Short name of the key's action; "": not in the bar. */
static const char *word_of(const struct key_binding *k)
{
    if (k->action == ACTION_PLACE)
        return keys_plans[k->index];
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (words[i].context == k->context && words[i].action == k->action && k->label)
            return words[i].word;
    return "";
}

/* "F5", "Alt-x", "Tab": the first name of its label, a function key's own. */
static void key_name(const struct key_binding *k, char *out, size_t size)
{
    if (k->key >= KEY_F1 && k->key <= KEY_F12)
        snprintf(out, size, "F%d", (int)(k->key - KEY_F1) + 1);
    else
        snprintf(out, size, "%.*s", k->label ? (int)strcspn(k->label, ",") : 0,
                 k->label ? k->label : "");
}

/* Whether the focused panel uses this key: movement and selection are shown among its own. */
static bool of_panel(const struct ui_model *m, const struct key_binding *k)
{
    const struct panel *p = panels[m->focus];
    const char *at = p->keys ? p->keys : "";
    size_t n = k->label ? strlen(k->label) : 0;

    if (k->action == ACTION_EXPLAIN)
        return panel_explanation(m, p) != NULL;
    if (k->action != ACTION_UP && k->action != ACTION_CHOOSE && k->action != ACTION_MODE)
        return true;
    for (; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, ", ") == n && k->label && strncmp(at, k->label, n) == 0)
            return true;
    return false;
}

/* Whether the key works as described in the current focus. */
static bool in_bar(const struct ui_model *m, const struct key_binding *k)
{
    int index;

    if (m->focus >= 0 || k->context == KEYS_PANEL)
        return m->focus >= 0 && k->context == KEYS_PANEL && of_panel(m, k);
    if (!m->serving && !m->training)
        return k->context == KEYS_CHAT;
    if (k->context != KEYS_CHAT && k->context != (m->training ? KEYS_TRAINING : KEYS_SERVER))
        return false;
    return keys_lookup(m->training ? KEYS_TRAINING : KEYS_SERVER, k->key, k->mods, &index) ==
           k->action;
}

/* Iterates over the bar; draws if c is given; returns the key at column `at`, NULL: none. */
static const struct key_binding *walk(struct canvas *c, struct rect r, const struct ui_model *m,
                                      int at)
{
    struct style key = theme_style(&m->theme, ROLE_STYLE_TEXT),
                 word = theme_style(&m->theme, ROLE_STYLE_BAR);
    int n, x = r.x;
    const struct key_binding *table = keys_table(&n);

    if (word.bg < 0)
        word.attrs |= STYLE_REVERSE;
    for (int i = 0; i < n; i++) {
        const struct key_binding *k = &table[i];
        const char *text = word_of(k);
        char name[24], label[40];
        int w;

        if (!in_bar(m, k) || !text[0])
            continue;
        key_name(k, name, sizeof name);
        snprintf(label, sizeof label, "%s ", text);
        w = glyph_text_width(name, strlen(name)) + glyph_text_width(label, strlen(label));
        if (x + w > r.x + r.w)
            break;
        if (at >= x && at < x + w)
            return k;
        if (c)
            canvas_text(c, canvas_text(c, x, r.y, key, name), r.y, word, label);
        x += w;
    }
    if (c && x < r.x + r.w)
        canvas_fill(c, (struct rect){x, r.y, r.x + r.w - x, 1}, word, ' ');
    return NULL;
}

void key_bar_draw(struct canvas *c, struct rect r, const struct ui_model *m)
{
    struct rect before = canvas_clip(c, r);

    walk(c, r, m, -1);
    canvas_clip_set(c, before);
}

const struct key_binding *key_bar_at(struct rect r, const struct ui_model *m, int x)
{
    return walk(NULL, r, m, x);
}
