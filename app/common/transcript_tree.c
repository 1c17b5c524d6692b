/* The branches of a conversation (transcript.h). entries[] is the current path; each of its entries
 * has an ordered list of the other tails from there on. A tail that is put aside keeps its own
 * branches. UI thread. */
#include "app/common/transcript.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <string.h>

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the branches of the conversation");
}

/* Inserts tail as item `at` of the list. */
static int tails_insert(struct transcript_tails *l, size_t at, struct transcript_tail tail,
                        struct error *e)
{
    assert(at <= l->n);
    if (!MEM_FIT(l->tails, l->n + 1))
        return no_memory(e);
    memmove(l->tails + at + 1, l->tails + at, (l->n - at) * sizeof *l->tails);
    l->tails[at] = tail;
    l->n++;
    return 0;
}

static struct transcript_tail tails_take(struct transcript_tails *l, size_t at)
{
    struct transcript_tail tail = l->tails[at];

    assert(at < l->n);
    memmove(l->tails + at, l->tails + at + 1, (--l->n - at) * sizeof *l->tails);
    return tail;
}

/* Removes the entries from `at` on from the path, into *tail; their siblings into *beside, *which.
 */
static int path_cut(struct transcript *t, size_t at, struct transcript_tail *tail,
                    struct transcript_tails *beside, size_t *which, struct error *e)
{
    size_t n = t->n - at;
    struct transcript_entry *copy = mem_alloc(n, sizeof *copy);

    assert(at < t->n);
    if (!copy)
        return no_memory(e);
    memcpy(copy, t->entries + at, n * sizeof *copy);
    *beside = copy[0].others;
    *which = copy[0].which;
    copy[0].others = (struct transcript_tails){0};
    copy[0].which = 0;
    *tail = (struct transcript_tail){copy, n};
    t->n = at;
    return 0;
}

/* Appends this tail to the path; it is consumed. */
static int path_append(struct transcript *t, struct transcript_tail *tail, struct error *e)
{
    size_t need = t->n + tail->n;

    if (need > t->size) {
        if (!MEM_FIT(t->entries, need))
            return no_memory(e);
        t->size = need;
    }
    memcpy(t->entries + t->n, tail->entries, tail->n * sizeof *tail->entries);
    t->n = need;
    mem_free(tail->entries);
    *tail = (struct transcript_tail){0};
    return 0;
}

int transcript_fork(struct transcript *t, size_t at, struct error *e)
{
    struct transcript_tail tail;
    struct transcript_tails beside;
    size_t which;
    int rc = transcript_unfork(t, e);

    if (rc < 0 || at >= t->n)
        return rc;
    if ((rc = path_cut(t, at, &tail, &beside, &which, e)) < 0)
        return rc;
    if ((rc = tails_insert(&beside, which, tail, e)) < 0) {
        path_append(t, &tail, NULL); /* cannot fail: its memory is still there */
        t->entries[at].others = beside;
        t->entries[at].which = which;
        return rc;
    }
    t->waiting = beside;
    t->waiting_which = which;
    t->waiting_at = at;
    return 0;
}

int transcript_unfork(struct transcript *t, struct error *e)
{
    size_t at = t->waiting_at;
    struct transcript_tail tail;
    int rc;

    if (!t->waiting.n || t->n != at)
        return 0;
    tail = t->waiting.tails[t->waiting_which];
    if ((rc = path_append(t, &tail, e)) < 0)
        return rc;
    tails_take(&t->waiting, t->waiting_which);
    t->entries[at].others = t->waiting;
    t->entries[at].which = t->waiting_which;
    t->waiting = (struct transcript_tails){0};
    return 0;
}

void transcript_fork_join(struct transcript *t)
{
    struct transcript_entry *x = t->n ? &t->entries[t->n - 1] : NULL;
    const struct transcript_entry *beside;

    if (!x || !t->waiting.n || t->n - 1 != t->waiting_at)
        return;
    /* the messages before it are the same, and so is their summary */
    beside = t->waiting.tails[t->waiting_which < t->waiting.n ? t->waiting_which : 0].entries;
    if (x->role == ROLE_USER && beside->summary)
        x->summary = mem_string(beside->summary); /* out of memory: the model sees all again */
    x->which = t->waiting.n;
    x->others = t->waiting;
    t->waiting = (struct transcript_tails){0};
}

void transcript_unjoin(struct transcript *t)
{
    struct transcript_entry *x = &t->entries[t->n - 1];

    assert(t->n > 0);
    if (x->others.n) {
        t->waiting = x->others;
        t->waiting_at = t->n - 1;
        x->others = (struct transcript_tails){0};
    }
    transcript_truncate(t, t->n - 1);
}

size_t transcript_siblings(const struct transcript *t, size_t at)
{
    assert(at < t->n);
    return t->entries[at].others.n + 1;
}

const struct transcript_entry *transcript_sibling(const struct transcript *t, size_t at, size_t k)
{
    const struct transcript_entry *x = &t->entries[at];

    assert(k < transcript_siblings(t, at));
    return k == x->which ? x : x->others.tails[k - (k > x->which)].entries;
}

int transcript_switch(struct transcript *t, size_t at, size_t k, struct error *e)
{
    struct transcript_tail tail, wanted;
    struct transcript_tails beside;
    size_t which;
    int rc = transcript_unfork(t, e);

    assert(at < t->n && k < transcript_siblings(t, at));
    if (rc < 0 || k == t->entries[at].which)
        return rc;
    if ((rc = path_cut(t, at, &tail, &beside, &which, e)) < 0)
        return rc;
    /* one is added for the one removed: the list has room */
    wanted = tails_take(&beside, k - (k > which));
    if ((rc = path_append(t, &wanted, e)) < 0) {
        tails_insert(&beside, k - (k > which), wanted, NULL);
        path_append(t, &tail, NULL);
        k = which;
    } else {
        tails_insert(&beside, which - (which > k), tail, NULL);
    }
    t->entries[at].others = beside;
    t->entries[at].which = k;
    return rc;
}

void transcript_tails_release(struct transcript_tails *l)
{
    for (size_t i = 0; i < l->n; i++) {
        for (size_t k = 0; k < l->tails[i].n; k++)
            transcript_entry_release(&l->tails[i].entries[k]);
        mem_free(l->tails[i].entries);
    }
    mem_free(l->tails);
    *l = (struct transcript_tails){0};
}
