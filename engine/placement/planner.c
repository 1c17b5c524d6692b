/* The spec parser and the checks of a plan. Pure functions, any thread. The table of strategies is
 * in strategies.c, the strategies themselves in planner_fill.c (those that fill a budget in some
 * order) and planner_model.c (the cost model and its optimiser). */
#include "engine/placement/planner.h"

#include "engine/base/mem.h"
#include "engine/base/size.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int planner_parse_number(const char *text, int *out)
{
    return size_digits(&text, 1000000, out) < 0 || *text ? -1 : 0;
}

const struct planner *planner_find(const char *name, size_t len)
{
    for (int i = 0; i < n_planners; i++)
        if (strlen(planners[i].name) == len && memcmp(planners[i].name, name, len) == 0)
            return &planners[i];
    return NULL;
}

/* "cpu, gpu, layers:[first:]N, ..." for the message about an unknown name. */
static void list_names(char *out, size_t size)
{
    size_t n = 0;

    for (int i = 0; i < n_planners && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "", planners[i].syntax);
}

int planner_parse(struct planner_spec *out, const char *spec, struct error *e)
{
    size_t len;
    const char *arguments;
    char names[240];

    memset(out, 0, sizeof *out);
    if (!spec || !*spec)
        return error_set(e, ERR_USAGE, "placement: empty; try `--place help`");
    if (strlen(spec) >= sizeof out->text)
        return error_set(e, ERR_USAGE, "placement '%.40s...': too long", spec);
    memcpy(out->text, spec, strlen(spec) + 1);
    out->size = PLANNER_NO_LIMIT;
    len = strcspn(spec, ":");
    arguments = spec[len] ? spec + len + 1 : NULL;
    out->planner = planner_find(spec, len);
    if (!out->planner) {
        list_names(names, sizeof names);
        return error_set(e, ERR_USAGE,
                         "placement '%s': no such strategy; one of %s, or a plan file (*.yaml)",
                         spec, names);
    }
    if (out->planner->parse)
        return out->planner->parse(out, arguments, e);
    if (arguments)
        return error_set(e, ERR_USAGE, "placement '%s': %s takes nothing after a colon", spec,
                         out->planner->name);
    return 0;
}

static const struct planner_share *share_of(const struct planner_spec *s,
                                            const struct planner_input *in, int device)
{
    for (int i = 0; i < s->n_shares; i++)
        if (s->share[i].number == in->devices[device].number)
            return &s->share[i];
    return NULL;
}

uint64_t planner_limit(const struct planner_spec *s, const struct planner_input *in, int device)
{
    const struct planner_share *share = share_of(s, in, device);
    uint64_t budget = in->devices[device].budget, size = !s->n_shares ? s->size
                                                         : share      ? share->size
                                                                      : 0;

    return size < budget ? size : budget;
}

int planner_count(const struct planner_spec *s, const struct planner_input *in, int device)
{
    const struct planner_share *share = share_of(s, in, device);

    return !s->n_shares ? s->count : share ? share->count : 0;
}

/* The device of a number in specs; 0: there is none. */
static int numbered(const struct planner_input *in, int number)
{
    for (int d = 1; d < in->n_devices; d++)
        if (in->devices[d].number == number)
            return d;
    return 0;
}

/* The devices to fill, in order. missing: the number of one that the spec names and that is not
 * there, or -1. */
static int targets_of(const struct planner_spec *s, const struct planner_input *in,
                      int out[PLANNER_DEVICES], int *missing)
{
    int n = 0;

    *missing = -1;
    for (int i = 0; i < s->n_shares; i++)
        if ((out[n] = numbered(in, s->share[i].number)))
            n++;
        else
            *missing = s->share[i].number;
    if (s->n_shares || !in->target)
        return n;
    out[n++] = in->target;
    for (int i = 0; i < in->n_also && n < PLANNER_DEVICES; i++)
        out[n++] = in->also[i];
    return n;
}

/* Fills one device after the other; what the last one says of the blocks that stay on the CPU is
 * what there is to say. */
static int fill_devices(const struct planner_spec *s, const struct planner_input *in,
                        const int *targets, int n, struct plan *p, char note[PLANNER_NOTE])
{
    struct planner_input one = *in;
    int rc = 0;

    for (int i = 0; i < n && rc == 0; i++) {
        one.target = targets[i];
        one.n_also = n - 1 - i;
        note[0] = 0;
        rc = s->planner->fill(s, &one, p, note);
    }
    return rc;
}

static bool is_auto(const struct planner_spec *s)
{
    return strcmp(s->planner->name, "auto") == 0;
}

/* What auto means: its verdict's spec; another spec itself, and an auto without a verdict. */
static const struct planner_spec *meant(const struct planner_spec *s,
                                        const struct planner_input *in, struct planner_spec *winner)
{
    if (!is_auto(s) || !in->verdict || planner_parse(winner, in->verdict, NULL) < 0 ||
        is_auto(winner))
        return s;
    return winner;
}

/* The plan's name and note say that auto chose it. */
static void name_auto(const struct planner_input *in, struct plan *p, char note[PLANNER_NOTE])
{
    snprintf(p->name, sizeof p->name, "auto (%.40s)", in->verdict);
    if (in->verdict_line && !note[0])
        snprintf(note, PLANNER_NOTE, "%s", in->verdict_line);
}

int planner_run(const struct planner_spec *s, const struct planner_input *in, struct plan **out,
                char note[PLANNER_NOTE], struct error *e)
{
    char unused[PLANNER_NOTE];
    char *line = note ? note : unused;
    struct plan *p = plan_new(s->text, in->n_layers, in->n_experts);
    struct planner_spec winner;
    int targets[PLANNER_DEVICES], missing, n;
    bool chosen;

    assert(s->planner && s->planner->fill);
    assert(in->n_devices >= 1 && in->n_devices <= PLANNER_DEVICES);
    assert(in->target >= 0 && in->target < in->n_devices);
    *out = NULL;
    line[0] = 0;
    if (!p)
        return error_set(e, ERR_MEMORY, "out of memory for a placement plan");
    chosen = in->n_devices > 1 && meant(s, in, &winner) != s;
    s = chosen ? &winner : s;
    n = targets_of(s, in, targets, &missing);
    if (in->n_devices == 1 || (!n && missing < 0)) {
        if (!s->planner->alone)
            snprintf(line, PLANNER_NOTE,
                     "%s: there is no device beside the CPU; everything stays on the CPU", s->text);
    } else if (fill_devices(s, in, targets, n, p, line) < 0) {
        plan_free(p);
        return error_set(e, ERR_MEMORY, "out of memory while planning '%s'", s->text);
    }
    if (missing >= 0 && in->n_devices > 1)
        snprintf(line, PLANNER_NOTE,
                 "%s: there is no device number %d here (-dev names those to use); its share stays "
                 "on the CPU",
                 s->text, missing);
    if (chosen && n)
        name_auto(in, p, line);
    *out = p;
    return 0;
}

int planner_help(char *out, size_t size)
{
    size_t n = 0;

    for (int i = 0; i < n_planners; i++)
        n += (size_t)snprintf(n < size ? out + n : NULL, n < size ? size - n : 0, "%-17s %s\n",
                              planners[i].syntax, planners[i].help);
    return (int)n;
}

enum plan_phase planner_phase(const char **spec)
{
    static const char word[] = "prompt";

    if (strncmp(*spec, word, sizeof word - 1) != 0 || (*spec)[sizeof word - 1] != ' ')
        return PHASE_TOKENS;
    *spec += sizeof word - 1;
    *spec += strspn(*spec, " ");
    return PHASE_PROMPT;
}

int planner_parse_request(struct planner_spec *out, enum plan_phase *phase, const char *request,
                          struct error *e)
{
    *phase = request ? planner_phase(&request) : PHASE_TOKENS;
    memset(out, 0, sizeof *out);
    if (*phase == PHASE_PROMPT && strcmp(request, PLANNER_SAME) == 0)
        return 0;
    return planner_parse(out, request, e);
}

uint64_t planner_bytes(const struct planner_input *in, const struct plan *p, int device)
{
    return planner_bytes_both(in, p, p, device);
}

uint64_t planner_bytes_both(const struct planner_input *in, const struct plan *a,
                            const struct plan *b, int device)
{
    int cells = in->n_layers * in->n_experts;
    uint64_t sum = a->head == device || b->head == device ? in->head_bytes : 0;
    bool passes = false;

    assert(device >= 0 && device < in->n_devices);
    for (int i = 0; i < in->n_layers; i++)
        sum += a->attention[i] == device || b->attention[i] == device ? in->attention_bytes[i] : 0;
    for (int i = 0; i < cells; i++) {
        bool there_a = a->experts[i] == device, there_b = b->experts[i] == device;

        passes |= (there_a && a->streamed[i]) || (there_b && b->streamed[i]);
        if ((there_a && !a->streamed[i]) || (there_b && !b->streamed[i]))
            sum += in->expert_bytes[i];
    }
    return sum + (passes ? in->devices[device].stream_bytes : 0);
}

int planner_check_both(const struct planner_input *in, const struct plan *tokens,
                       const struct plan *prompts, struct error *e)
{
    for (int d = 1; d < in->n_devices; d++) {
        uint64_t bytes = planner_bytes_both(in, tokens, prompts, d), room = in->devices[d].budget;

        if (bytes > room)
            return error_set(e, ERR_USAGE,
                             "%s for tokens and %s for prompts need %.1f MiB together on %s, which "
                             "may hold %.1f: give one a SIZE (hot:%.0fM), or both the same plan",
                             tokens->name, prompts->name, (double)bytes / (1 << 20),
                             in->devices[d].name ? in->devices[d].name : "the device",
                             (double)room / (1 << 20), (double)room / (1 << 21));
    }
    return 0;
}

bool planner_can_attention(const struct planner_input *in, int device, int layer)
{
    const struct planner_device *d = &in->devices[device];

    assert(device >= 0 && device < in->n_devices);
    assert(layer >= 0 && layer < in->n_layers);
    return device == 0 ||
           (in->attention_bytes[layer] && (!d->attention_can || d->attention_can[layer]));
}

bool planner_can_expert(const struct planner_input *in, int device, int layer, int expert)
{
    const struct planner_device *d = &in->devices[device];

    assert(device >= 0 && device < in->n_devices);
    return device == 0 || (planner_has_expert(in, layer, expert) &&
                           (!d->experts_can || d->experts_can[layer * in->n_experts + expert]));
}

bool planner_has_expert(const struct planner_input *in, int layer, int expert)
{
    assert(layer >= 0 && layer < in->n_layers);
    assert(expert >= 0 && expert < in->n_experts);
    return in->expert_bytes[layer * in->n_experts + expert] > 0;
}

int planner_experts(const struct planner_input *in)
{
    int n = 0;

    for (int i = 0; i < in->n_layers * in->n_experts; i++)
        n += in->expert_bytes[i] > 0;
    return n;
}

static const char *device_name(const struct planner_input *in, int device)
{
    return in->devices[device].name ? in->devices[device].name : "the device";
}

int planner_check(const struct planner_input *in, const struct plan *p, struct error *e)
{
    if (p->n_layers != in->n_layers || p->n_experts != in->n_experts)
        return error_set(e, ERR_USAGE,
                         "plan '%s' is for %d layers of %d experts; this model has %d of %d",
                         p->name, p->n_layers, p->n_experts, in->n_layers, in->n_experts);
    for (int l = 0; l < in->n_layers; l++) {
        if (p->attention[l] >= in->n_devices)
            return error_set(e, ERR_USAGE,
                             "plan '%s': layer %d's attention is on device %d; there are %d",
                             p->name, l, p->attention[l], in->n_devices);
        if (!planner_can_attention(in, p->attention[l], l))
            return error_set(e, ERR_USAGE, "plan '%s': %s cannot run the attention of layer %d",
                             p->name, device_name(in, p->attention[l]), l);
        for (int x = 0; x < in->n_experts; x++) {
            int d = plan_expert(p, l, x);

            if (d >= in->n_devices)
                return error_set(e, ERR_USAGE,
                                 "plan '%s': expert %d of layer %d is on device %d; there are %d",
                                 p->name, x, l, d, in->n_devices);
            if (p->streamed[l * in->n_experts + x] && !in->devices[d].streams)
                return error_set(
                    e, ERR_USAGE,
                    "plan '%s': experts cannot be streamed through %s (expert %d of layer %d)",
                    p->name, device_name(in, d), x, l);
            if (!planner_can_expert(in, d, l, x))
                return error_set(e, ERR_USAGE, "plan '%s': %s cannot run expert %d of layer %d",
                                 p->name, device_name(in, d), x, l);
        }
    }
    if (p->head >= in->n_devices)
        return error_set(e, ERR_USAGE, "plan '%s': the head is on device %d; there are %d", p->name,
                         p->head, in->n_devices);
    if (p->head && !in->devices[p->head].head_can)
        return error_set(e, ERR_USAGE, "plan '%s': %s cannot run the head", p->name,
                         device_name(in, p->head));
    return 0;
}

/* Up to the comma before the next step; one before "1=2G" belongs to the step's own list. */
static size_t step_length(const char *script)
{
    size_t len = strcspn(script, ",");

    while (script[len]) {
        size_t digits = strspn(script + len + 1, "0123456789");

        if (!digits || script[len + 1 + digits] != '=')
            break;
        len += 1 + strcspn(script + len + 1, ",");
    }
    return len;
}

int planner_script_parse(struct planner_step *out, int max, const char *script, struct error *e)
{
    int n = 0;

    assert(max >= 0);
    while (script && *script) {
        size_t len = step_length(script);
        char item[PLAN_NAME + 16], *colon;
        struct planner_step *s = out + n;

        if (n == max)
            return error_set(e, ERR_USAGE, "--place-script: more than %d steps", max);
        if (len >= sizeof item)
            return error_set(e, ERR_USAGE, "--place-script: '%.20s...' is too long", script);
        memcpy(item, script, len);
        item[len] = 0;
        colon = strchr(item, ':');
        if (colon)
            *colon = 0;
        if (!colon || !colon[1] || planner_parse_number(item, &s->after) < 0)
            return error_set(
                e, ERR_USAGE,
                "--place-script: '%.*s': write TOKENS:PLACEMENT, for example 20:gpu,45:hot,80:cpu",
                (int)len, script);
        if (strlen(colon + 1) >= sizeof s->spec)
            return error_set(e, ERR_USAGE, "--place-script: '%s' is too long", colon + 1);
        memcpy(s->spec, colon + 1, strlen(colon + 1) + 1);
        if (n && s->after <= s[-1].after)
            return error_set(
                e, ERR_USAGE,
                "--place-script: the step at %d comes after the one at %d; steps must rise",
                s->after, s[-1].after);
        n++;
        script += len;
        if (*script == ',' && !*++script)
            return error_set(e, ERR_USAGE, "--place-script: nothing after the last comma");
    }
    return n;
}
