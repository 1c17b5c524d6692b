/* See layout.h. */
#include "ui/layout.h"

#include <assert.h>
#include <string.h>

static int clamp(int v, int low, int high)
{
    return v < low ? low : v > high ? high : v;
}

/* The panels of one column and their rows. */
struct column {
    const struct layout_request *r;
    /* order of service: the focused one, then by priority */
    int order[LAYOUT_PANELS], n;
    int rows[LAYOUT_PANELS]; /* of each panel, title row included; 0: not shown */
    int most[LAYOUT_PANELS]; /* limit of each */
    int used, height;
};

static const struct layout_panel *panel_at(const struct column *k, int i)
{
    return &k->r->panels[k->order[i]];
}

/* It gets rows only after the others have all they want. */
static bool is_luxury(const struct column *k, int i)
{
    return panel_at(k, i)->priority >= LAYOUT_LUXURY && k->order[i] != k->r->focus;
}

static int rows_needed(const struct layout_panel *p)
{
    return 1 + p->min;
}

static int rows_wanted(const struct layout_panel *p)
{
    return 1 + (p->want > p->min ? p->want : p->min);
}

static bool before(const struct layout_request *r, int a, int b)
{
    return a == r->focus || (b != r->focus && r->panels[a].priority <= r->panels[b].priority);
}

static struct column column_order(const struct layout_request *r, const bool *member, int height)
{
    struct column k = {.r = r, .height = height};
    int i, j;

    for (i = 0; i < r->n_panels; i++) {
        if (!member[i])
            continue;
        for (j = k.n++; j > 0 && !before(r, k.order[j - 1], i); j--)
            k.order[j] = k.order[j - 1];
        k.order[j] = i;
    }
    return k;
}

/* Whether all fit, each with its required rows, a luxury one in addition to what the others
 * want. */
static bool column_fits(const struct column *k)
{
    int needed = 0, wanted = 0;

    for (int i = 0; i < k->n; i++) {
        int need = rows_needed(panel_at(k, i));

        if (is_luxury(k, i) && wanted + need > k->height)
            return false;
        needed += need;
        wanted += rows_wanted(panel_at(k, i));
    }
    return needed <= k->height;
}

/* Decides which panels are shown, with their required rows. */
static void rows_need(struct column *k)
{
    int wanted = 0;

    for (int i = 0; i < k->n; i++) {
        int need = rows_needed(panel_at(k, i));

        /* the first one is shown with whatever rows there are */
        if (i == 0 && need > k->height)
            need = k->height;
        if (need < 1 || k->used + need > k->height ||
            (is_luxury(k, i) && wanted + need > k->height))
            continue;
        wanted += rows_wanted(panel_at(k, i));
        k->rows[k->order[i]] = need;
        k->used += need;
    }
}

/* Raises shown panels to what they want; whole: only those served before the others. */
static void rows_want(struct column *k, bool whole)
{
    for (int i = 0; i < k->n; i++) {
        int p = k->order[i], want = 1 + panel_at(k, i)->want, more;

        if (!k->rows[p] || (whole && !panel_at(k, i)->whole))
            continue;
        more = clamp(want - k->rows[p], 0, k->height - k->used);
        k->rows[p] += more;
        k->used += more;
    }
}

/* One round of sharing the remaining rows by `grow`; returns the rows given. */
static int rows_grow_once(struct column *k, int weight)
{
    int left = k->height - k->used, gave = 0;

    for (int i = 0; i < k->n; i++) {
        int p = k->order[i], grow = panel_at(k, i)->grow, more;

        if (!k->rows[p] || !grow)
            continue;
        more = clamp((left * grow + weight - 1) / weight, 0,
                     k->most[p] > k->rows[p] ? k->most[p] - k->rows[p] : 0);
        more = clamp(more, 0, k->height - k->used);
        k->rows[p] += more;
        k->used += more;
        gave += more;
    }
    return gave;
}

/* Shares the remaining rows among panels that grow. */
static void rows_grow(struct column *k)
{
    int weight = 0;

    for (int i = 0; i < k->n; i++)
        weight += k->rows[k->order[i]] ? panel_at(k, i)->grow : 0;
    while (weight > 0 && k->used < k->height && rows_grow_once(k, weight))
        ;
}

/* Takes back rows between two steps. */
static void rows_step(struct column *k)
{
    for (int i = 0; i < k->n; i++) {
        int p = k->order[i], step = panel_at(k, i)->step;

        if (step && k->rows[p] > 1 + step && k->rows[p] < k->most[p]) {
            k->used -= k->rows[p] - 1 - step;
            k->rows[p] = k->most[p] = 1 + step;
        }
    }
}

/* Divides a column's rows: first which panels are shown (by priority), then what each wants, then
 * the rest. */
static void column_share(struct layout *out, const struct layout_request *r, struct rect area,
                         const bool *member, bool tabs_allowed)
{
    struct column k = column_order(r, member, area.h);
    int y = area.y;

    if (!column_fits(&k) && tabs_allowed && k.height > 1)
        out->tabs = (struct rect){area.x, area.y + --k.height, area.w, 1};
    for (int i = 0; i < k.n; i++)
        k.most[k.order[i]] = panel_at(&k, i)->most ? 1 + panel_at(&k, i)->most : k.height;
    rows_need(&k);
    rows_want(&k, true);
    rows_want(&k, false);
    rows_grow(&k);
    rows_step(&k);
    rows_grow(&k);
    for (int i = 0; i < r->n_panels; i++) {
        if (!k.rows[i])
            continue;
        out->panels[i] = (struct rect){area.x, y, area.w, k.rows[i]};
        y += k.rows[i];
    }
}

/* Places the panel that spans both columns, on top; returns its rows. */
static int across_place(struct layout *out, const struct layout_request *r, struct rect area)
{
    int limit = area.h * LAYOUT_ACROSS / 100, rows;

    for (int i = 0; i < r->n_panels; i++) {
        const struct layout_panel *p = &r->panels[i];

        if (!p->open || p->stage || !p->across)
            continue;
        rows = p->most && 1 + p->most <= limit ? 1 + p->most : clamp(rows_wanted(p), 0, limit);
        out->panels[i] = (struct rect){area.x, area.y, area.w, rows};
        out->mode = LAYOUT_WIDE;
        return rows;
    }
    return 0;
}

/* Places two columns of a and b cells, and above them the panel across. */
static void columns_place(struct layout *out, const struct layout_request *r, struct rect area,
                          int a, int b, const bool *first, const bool *second)
{
    int top = across_place(out, r, area), y = area.y + top, h = area.h - top;

    out->rule[1] = (struct rect){area.x + a, y, 1, h};
    column_share(out, r, (struct rect){area.x, y, a, h}, first, false);
    column_share(out, r, (struct rect){area.x + a + 1, y, b, h}, second, true);
}

/* Assigns panels to two columns; one across both is in neither. Returns which of them have any: 1,
 * 2, 3: both. */
static int columns_of(const struct layout_request *r, bool *first, bool *second)
{
    int any = 0;

    for (int i = 0; i < r->n_panels; i++) {
        const struct layout_panel *p = &r->panels[i];

        if (!p->open || p->stage || p->across)
            continue;
        (p->column == 1 ? second : first)[i] = true;
        any |= p->column == 1 ? 2 : 1;
    }
    return any;
}

static void panels_place(struct layout *out, const struct layout_request *r, int body_y, int body_h,
                         int *chat_w)
{
    bool first[LAYOUT_PANELS] = {false}, second[LAYOUT_PANELS] = {false}, any = false;
    int width;

    if (columns_of(r, first, second) == 3 && out->mode == LAYOUT_TWO) {
        int both = r->w * 40 / 100 - 2, a = clamp(both * 38 / 78, 10, 56),
            b = clamp(both - a, 10, 60);

        *chat_w = r->w - a - b - 2;
        out->rule[0] = (struct rect){*chat_w, body_y, 1, body_h};
        columns_place(out, r, (struct rect){*chat_w + 1, body_y, a + 1 + b, body_h}, a, b, first,
                      second);
        return;
    }
    for (int i = 0; i < r->n_panels; i++)
        any |= first[i] = r->panels[i].open && !r->panels[i].stage;
    if (!any)
        return;
    width = out->mode == LAYOUT_TABS ? r->w * 34 / 100 : clamp(r->w * 38 / 100, 20, 64);
    *chat_w = r->w - width - 1;
    out->rule[0] = (struct rect){*chat_w, body_y, 1, body_h};
    column_share(out, r, (struct rect){*chat_w + 1, body_y, width, body_h}, first, true);
}

/* Places panels shown instead of the chat. */
static void stage_place(struct layout *out, const struct layout_request *r)
{
    bool member[LAYOUT_PANELS] = {false}, any = false;

    for (int i = 0; i < r->n_panels; i++)
        any |= member[i] = r->panels[i].open && r->panels[i].stage;
    if (!any)
        return;
    column_share(out, r, out->chat, member, false);
    out->chat.h = 0;
}

enum layout_mode layout_mode(int w, int h)
{
    return w < 20 || h < 5       ? LAYOUT_TEXT
           : w < 60              ? LAYOUT_LINE
           : w < 100             ? LAYOUT_TABS
           : w >= 180 && h >= 30 ? LAYOUT_TWO
                                 : LAYOUT_COLUMN;
}

void layout_make(struct layout *out, const struct layout_request *r)
{
    int w = r->w < 1 ? 1 : r->w, h = r->h < 1 ? 1 : r->h, chat_w = w, body_y, input_rows, y;
    int alone = r->zoom >= 0 && r->zoom < r->n_panels ? r->zoom : -1;

    assert(r->n_panels >= 0 && r->n_panels <= LAYOUT_PANELS);
    assert(r->focus >= -1 && r->focus < LAYOUT_PANELS && r->zoom >= -1 && r->zoom < LAYOUT_PANELS);
    memset(out, 0, sizeof *out);
    out->mode = layout_mode(w, h);
    if (out->mode == LAYOUT_TEXT) {
        out->chat = (struct rect){0, 0, w, h - 1};
        /* one row: the typed text, which Enter would send unseen */
        out->input = (struct rect){0, h - 1, w, 1};
        stage_place(out, r);
        return;
    }
    out->title = (struct rect){0, 0, w, 1};
    if (r->keys && h >= LAYOUT_KEYS && out->mode != LAYOUT_LINE)
        out->keys = (struct rect){0, --h, w, 1};
    /* a rule below the title if there are enough rows */
    body_y = h >= 10 && out->mode != LAYOUT_LINE ? 2 : 1;
    input_rows = clamp(r->input_rows, 1, h >= 12 ? h / 3 : 1);

    if (out->mode == LAYOUT_LINE && alone < 0 && r->focus >= 0 && r->focus < r->n_panels)
        alone = r->focus;
    if (alone < 0 && out->mode != LAYOUT_LINE)
        panels_place(out, r, body_y, h - body_y, &chat_w);
    y = h - input_rows;
    out->input = (struct rect){0, y, chat_w, input_rows};
    if (y - body_y >= 4)
        out->input_rule = (struct rect){0, --y, chat_w, 1};
    out->chat = (struct rect){0, body_y, chat_w, y - body_y};
    if (alone >= 0) {
        out->panels[alone] = out->chat;
        out->chat.h = 0;
    } else {
        stage_place(out, r);
    }
}
