/* Properties of the layout at every size from 1x1 to 250x80. */
#include "tests/support.h"
#include "ui/layout.h"

#include <string.h>

static void request_default(struct layout_request *r, int w, int h)
{
    static const struct layout_panel panels[] = {
        {true, 3, 4, 0, 4, 0, 0, 0, false, false, false},
        {true, 3, 4, 0, 0, 0, 3, 0, false, false, false},
        {true, 2, 4, 0, 8, 0, 4, 0, false, false, false},
        {true, 4, 18, 3, 34, 18, 1, 1, true, false, false},
        {true, 2, 5, 0, 12, 0, 2, 0, false, false, false},
        {true, 3, 8, 2, 0, 0, LAYOUT_LUXURY, 1, false, false, false},
    };

    memset(r, 0, sizeof *r);
    r->w = w;
    r->h = h;
    r->n_panels = 6;
    memcpy(r->panels, panels, sizeof panels);
    r->focus = r->zoom = -1;
    r->input_rows = 1;
}

static int add(struct rect *all, int n, struct rect r)
{
    if (r.w > 0 && r.h > 0)
        all[n++] = r;
    return n;
}

static void assert_sound(const struct layout_request *q)
{
    struct layout l;
    struct rect all[LAYOUT_PANELS + 9];
    int n = 0, i, j;

    layout_make(&l, q);
    n = add(all, n, l.title);
    n = add(all, n, l.chat);
    n = add(all, n, l.rule[0]);
    n = add(all, n, l.rule[1]);
    n = add(all, n, l.input_rule);
    n = add(all, n, l.input);
    n = add(all, n, l.tabs);
    n = add(all, n, l.keys);
    for (i = 0; i < q->n_panels; i++)
        n = add(all, n, l.panels[i]);
    ck_assert_int_gt(n, 0);
    for (i = 0; i < n; i++) {
        if (all[i].x < 0 || all[i].y < 0 || all[i].x + all[i].w > q->w ||
            all[i].y + all[i].h > q->h)
            ck_abort_msg("%dx%d: rectangle %d,%d %dx%d sticks out", q->w, q->h, all[i].x, all[i].y,
                         all[i].w, all[i].h);
        for (j = 0; j < i; j++) {
            struct rect both = rect_intersect(all[i], all[j]);

            if (both.w && both.h)
                ck_abort_msg("%dx%d: %d,%d %dx%d overlaps %d,%d %dx%d", q->w, q->h, all[i].x,
                             all[i].y, all[i].w, all[i].h, all[j].x, all[j].y, all[j].w, all[j].h);
        }
    }
    if (q->zoom < 0 && l.mode >= LAYOUT_TABS)
        ck_assert_msg(l.chat.w * 10 >= q->w * 6, "%dx%d: the chat has %d columns", q->w, q->h,
                      l.chat.w);
    if (q->zoom < 0 && q->focus < 0)
        ck_assert_msg(l.chat.w > 0 && (l.chat.h > 0 || q->h == 1), "%dx%d: no chat", q->w, q->h);
    if (q->focus >= 0 && l.mode >= LAYOUT_LINE && q->zoom < 0)
        ck_assert_msg(l.panels[q->focus].h > 0 || !q->panels[q->focus].open,
                      "%dx%d: the focused panel is not shown", q->w, q->h);
    ck_assert_int_ge(l.input.h, 1);
    /* Rows a panel has no use for go to another one. */
    for (i = 0; i < q->n_panels && q->zoom < 0; i++)
        if (q->panels[i].step && l.mode >= LAYOUT_TABS && l.panels[i].h > 1 + q->panels[i].step)
            ck_assert_msg(l.panels[i].h == 1 + q->panels[i].most, "%dx%d: panel %d has %d rows",
                          q->w, q->h, i, l.panels[i].h);
}

START_TEST(every_size)
{
    int w, h, focus, input;

    for (w = 1; w <= 250; w++)
        for (h = 1; h <= 80; h++) {
            struct layout_request r;

            request_default(&r, w, h);
            assert_sound(&r);
            r.panels[3].across = true;
            assert_sound(&r);
            r.panels[3].across = w % 2;
            r.keys = true;
            assert_sound(&r);
            focus = (w * 7 + h) % 6;
            r.focus = focus;
            assert_sound(&r);
            input = 1 + (w + h) % 30;
            r.input_rows = input;
            assert_sound(&r);
            r.zoom = focus;
            assert_sound(&r);
            r.focus = r.zoom = -1;
            r.panels[(w + h) % 6].open = false;
            r.panels[(w + 2 * h) % 6].open = false;
            assert_sound(&r);
            memset(r.panels, 0, sizeof r.panels);
            assert_sound(&r);
        }
}
END_TEST

START_TEST(promised_shapes)
{
    struct layout_request r;
    struct layout l;

    request_default(&r, 80, 24);
    layout_make(&l, &r);
    ck_assert_int_eq(l.mode, LAYOUT_TABS);
    ck_assert_int_eq(l.chat.w, 52);
    ck_assert_int_eq(l.panels[0].w, 27);
    ck_assert_int_gt(l.panels[3].h, 0);
    ck_assert_int_gt(l.panels[4].h, 0);
    request_default(&r, 120, 40);
    layout_make(&l, &r);
    ck_assert_int_eq(l.mode, LAYOUT_COLUMN);
    ck_assert_int_ge(l.chat.w, 72);
    ck_assert_int_eq(l.panels[3].h, 19); /* the map has all its rows, */
    /* and what does not fit beside it is named */
    ck_assert(l.panels[5].h > 0 || l.tabs.h > 0);
    request_default(&r, 200, 60);
    layout_make(&l, &r);
    ck_assert_int_eq(l.mode, LAYOUT_TWO);
    ck_assert_int_gt(l.panels[3].x, l.panels[0].x);
    ck_assert_int_gt(l.panels[5].h, 8);
    r.panels[3].across = true;
    layout_make(&l, &r);
    ck_assert_int_eq(l.mode, LAYOUT_WIDE);
    ck_assert_int_eq(l.panels[3].w, l.panels[0].w + 1 + l.panels[5].w);
    ck_assert_int_eq(l.panels[0].y, l.panels[3].y + l.panels[3].h);
    request_default(&r, 59, 20);
    layout_make(&l, &r);
    ck_assert_int_eq(l.mode, LAYOUT_LINE);
    ck_assert_int_eq(l.chat.w, 59);
    request_default(&r, 19, 20);
    layout_make(&l, &r);
    ck_assert_int_eq(l.mode, LAYOUT_TEXT);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("layout");
    TCase *t = tcase_create("layout");

    tcase_set_timeout(t, 240);
    tcase_add_test(t, every_size);
    tcase_add_test(t, promised_shapes);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
