/* Training: gradients against finite differences for every kind of layer, golden runs of other
 * tools, the same bits for any number of threads and after an interruption, what is refused. */
#include "app/train/settings.h"
#include "engine/base/json.h"
#include "engine/layout/pack.h"
#include "engine/train/checkpoint.h"
#include "engine/train/save.h"
#include "tests/support.h"
#include "tests/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- tiny models ---- */

enum { WHOLE = 32, BLOCKS = 256, VOCAB = 48, CONTEXT = 96 };

/* A layer of each kind that is trained. */
static struct layer_shape shape_of(int kind)
{
    struct layer_shape s = {
        .mixer = {.heads = 4, .kv_heads = 2, .key_dim = 8, .rope_dims = 8},
        .ffn = {.experts = 6, .used = 2, .width = 24, .router = {.jitter = 0.1f}},
        .norms = {.eps = 1e-5f, .before = true}};

    switch (kind) {
    case 0: break;                                                /* phimoe */
    case 1: s.mixer.window = 20; s.mixer.rope = ROPE_PAIRS; break;
    case 2:                                                       /* qwen2_moe */
        s.norms.kind = NORM_RMS;
        s.ffn.router = (struct router_shape){.kind = ROUTER_SOFTMAX};
        s.ffn.shared = 1;
        s.ffn.shared_width = 40;
        s.ffn.shared_gate = SHARED_SIGMOID;
        break;
    case 3:                                                       /* qwen3_moe */
        s.norms.kind = NORM_RMS;
        s.mixer.qk_norm = QK_NORM_HEAD;
        s.ffn.router = (struct router_shape){.kind = ROUTER_SOFTMAX, .normalised = true};
        s.ffn.used = 3;
        break;
    case 4:                                                       /* olmoe */
        s.norms.kind = NORM_RMS;
        s.mixer.qk_norm = QK_NORM_WHOLE;
        s.ffn.router = (struct router_shape){.kind = ROUTER_SOFTMAX, .factor = 1.5f};
        break;
    case 5:                                                       /* llama */
        s.norms.kind = NORM_RMS;
        s.ffn = (struct ffn_shape){.kind = FFN_DENSE, .shared = 1, .shared_width = 48};
        break;
    default:                                                      /* gpt2 */
        s.mixer.rope = ROPE_NONE;
        s.mixer.kv_heads = 4;
        s.ffn = (struct ffn_shape){.kind = FFN_DENSE, .shared = 1, .shared_width = 48,
                                   .activation = ACTIVATION_GELU_PLAIN, .bias = true};
        break;
    }
    return s;
}
#define KINDS 7

/* width: of an expert. */
static struct tiny_model *tiny_sized(int kind, enum dtype type, unsigned seed, int hidden,
                                     int width)
{
    static float embeddings[VOCAB * BLOCKS];
    struct layer_shape shapes[2] = {shape_of(kind), shape_of(kind)};
    const struct tiny_shape s = {.layers = 2, .hidden = hidden, .heads = 4,
                                 .kv_heads = shapes[0].mixer.kv_heads, .head_dim = 8, .ffn = width,
                                 .experts = 6, .vocab = VOCAB, .rope_dims = 8, .context = CONTEXT,
                                 .type = type, .bias = kind != 4, .seed = seed, .shapes = shapes,
                                 .residual_scale = kind == 3 ? 0.7f : 0.0f};
    struct tiny_model *t;
    unsigned state = seed;

    for (int l = 0; l < 2 && shapes[l].ffn.experts; l++)
        shapes[l].ffn.width = width;
    t = tiny_model_new(&s);
    for (int i = 0; i < VOCAB * hidden; i++)
        embeddings[i] = tiny_random(&state);
    t->model.embeddings = (struct tensor_view){
        .name = "embeddings", .type = DTYPE_F32, .n_dims = 2, .dims = {VOCAB, hidden},
        .data = embeddings, .bytes = (size_t)(VOCAB * hidden) * sizeof *embeddings};
    return t;
}

static struct tiny_model *tiny_new(int kind, enum dtype type, unsigned seed)
{
    return tiny_sized(kind, type, seed, WHOLE, 24);
}

static const char *tiny_data(int lines)
{
    static char path[400];
    unsigned state = 7;
    FILE *f;

    snprintf(path, sizeof path, "%s/data-%d.jsonl", support_tmpdir(), lines);
    f = fopen(path, "w");
    for (int i = 0; i < lines; i++) {
        int n = 5 + i * 17 % 71;

        fprintf(f, "{\"input_ids\": [");
        for (int k = 0; k < n; k++)
            fprintf(f, "%s%d", k ? ", " : "", (int)((tiny_random(&state) + 1) * 23.9f));
        fprintf(f, "], \"loss_mask\": [");
        for (int k = 0; k < n; k++)
            fprintf(f, "%s%d", k ? ", " : "", k > 1 && k % 3);
        fprintf(f, "]}\n");
    }
    fclose(f);
    return path;
}

static struct train_config tiny_config(void)
{
    struct train_config c;

    train_config_init(&c);
    c.steps = 6;
    c.batch = 2;
    c.accumulation = 2;
    c.lr = 0.01;
    c.rank = 3;
    c.alpha = 6;
    c.init_b = 0.2;
    c.seed = 5;
    return c;
}

static struct trainer *tiny_trainer(struct tiny_model *m, struct train_config c, int threads)
{
    struct trainer_options o = {.loaded = &m->model, .data = tiny_data(5), .config = c,
                                .threads = threads};
    struct trainer *t;
    struct error e;

    ck_assert_msg(trainer_open(&t, &o, &e) == 0, "%s", e.text);
    return t;
}

/* ---- gradients ---- */

static double loss_at(struct trainer *t)
{
    struct train_step s;
    struct error e;

    ck_assert_msg(trainer_gradients(t, &s, &e) == 0, "%s", e.text);
    return s.loss;
}

/* A or B of one kind of part in all blocks, by the gradient: which values it is, and how long. */
struct way {
    struct trainer *t;
    const float *grads;
    enum matrix_part part;
    bool of_a;
    double length;
};

/* Walks `by` along the gradient; 0: measures it. */
static void walk(struct way *w, double by)
{
    const struct modules *m = trainer_modules(w->t);
    double square = 0.0;

    for (int i = 0; i < m->n; i++) {
        const struct module *x = &m->list[i];
        size_t n = (size_t)x->rank * (size_t)(w->of_a ? x->cols : x->rows),
               at = (size_t)((w->of_a ? x->a : x->b) - m->values);

        for (size_t k = at; x->parts[0] == w->part && k < at + n; k++) {
            square += (double)w->grads[k] * (double)w->grads[k];
            m->values[k] += by != 0.0 ? (float)(by * (double)w->grads[k] / w->length) : 0.0f;
        }
    }
    w->length = by != 0.0 ? w->length : sqrt(square);
}

/* A step of h there and back must change the loss by the gradient's length; of some h, since a
 * token that takes another expert in between makes a difference of its own. */
static void check_part(struct way w, int kind)
{
    static const double steps[] = {3e-3, 1e-3, 3e-4, 1e-4};
    double change = 0.0;

    walk(&w, 0.0);
    for (size_t i = 0; w.length > 0.0 && i < sizeof steps / sizeof *steps; i++) {
        double h = steps[i], up;

        walk(&w, h);
        up = loss_at(w.t);
        walk(&w, -2 * h);
        change = (up - loss_at(w.t)) / (2 * h);
        walk(&w, h);
        if (fabs(change / w.length - 1) < 0.03)
            return;
    }
    ck_assert_msg(w.length == 0.0,
                  "kind %d, part %s, %s: the loss changes by %g, the gradient says %g", kind,
                  matrix_part_name(w.part), w.of_a ? "A" : "B", change, w.length);
}

START_TEST(gradients_are_those_of_finite_differences)
{
    static const enum matrix_part parts[] = {MATRIX_Q, MATRIX_K, MATRIX_V, MATRIX_O,
                                             MATRIX_GATE, MATRIX_UP, MATRIX_DOWN};
    struct tiny_model *m = tiny_new(_i, DTYPE_F32, 11);
    struct trainer *t = tiny_trainer(m, tiny_config(), 2);
    const struct modules *x = trainer_modules(t);
    float *grads = malloc(x->n_values * sizeof *grads);

    loss_at(t);
    memcpy(grads, x->grads, x->n_values * sizeof *grads);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (int of_a = 0; of_a < 2; of_a++)
            check_part((struct way){t, grads, parts[i], of_a, 0.0}, _i);
    free(grads);
    trainer_close(t);
    tiny_model_free(m);
}
END_TEST

/* ---- bits ---- */

static float *train(struct tiny_model *m, struct train_config c, int threads, size_t *n)
{
    struct trainer *t = tiny_trainer(m, c, threads);
    struct train_step s;
    struct error e;
    float *values;

    while (trainer_state(t).step < trainer_config(t)->steps)
        ck_assert_msg(trainer_step(t, &s, &e) == 0, "%s", e.text);
    *n = trainer_modules(t)->n_values * sizeof *values;
    values = malloc(*n);
    memcpy(values, trainer_modules(t)->values, *n);
    trainer_close(t);
    return values;
}

START_TEST(threads_do_not_show)
{
    struct tiny_model *m = tiny_new(_i, _i == 3 ? DTYPE_BF16 : DTYPE_F32, 3);
    size_t n;
    float *one = train(m, tiny_config(), 1, &n);

    for (int threads = 2; threads < 4; threads++) {
        float *many = train(m, tiny_config(), threads, &n);

        ck_assert_msg(memcmp(one, many, n) == 0, "kind %d: other bits with %d threads", _i,
                      threads);
        free(many);
    }
    free(one);
    tiny_model_free(m);
}
END_TEST

static uint64_t batch_bytes(struct tiny_model *m, struct train_config c)
{
    struct trainer *t = tiny_trainer(m, c, 1);
    uint64_t bytes = trainer_memory(t).batch;

    trainer_close(t);
    return bytes;
}

START_TEST(what_is_kept_does_not_show)
{
    struct tiny_model *m = tiny_new(_i, DTYPE_F32, 3);
    struct train_config all = tiny_config(), none = all;
    size_t n;
    float *kept = train(m, all, 2, &n), *again;

    none.keep_activations = 0;
    again = train(m, none, 2, &n);
    ck_assert_msg(memcmp(kept, again, n) == 0, "kind %d: other bits", _i);
    ck_assert_uint_gt(batch_bytes(m, all), batch_bytes(m, none));
    ck_assert(train_config_hash(&all) == train_config_hash(&none));
    free(kept);
    free(again);
    tiny_model_free(m);
}
END_TEST

START_TEST(a_run_that_was_cut_ends_with_the_same_bits)
{
    struct tiny_model *m = tiny_new(2, DTYPE_F32, 9);
    struct train_config other = tiny_config();
    struct trainer *t = tiny_trainer(m, tiny_config(), 1);
    char path[400];
    struct train_step s;
    struct error e;
    size_t n;
    float *whole = train(m, tiny_config(), 2, &n);

    snprintf(path, sizeof path, "%s/run.checkpoint", support_tmpdir());
    ck_assert_int_eq(checkpoint_read(t, path, &e), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(trainer_step(t, &s, &e), 0);
    ck_assert_int_eq(checkpoint_write(t, path, &e), 0);
    trainer_close(t);
    t = tiny_trainer(m, tiny_config(), 2);
    ck_assert_msg(checkpoint_read(t, path, &e) == 1, "%s", e.text);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(trainer_step(t, &s, &e), 0);
    ck_assert_int_eq(s.step, 6);
    ck_assert_int_eq(memcmp(trainer_modules(t)->values, whole, n), 0);
    trainer_close(t);
    other.lr = 0.02;
    t = tiny_trainer(m, other, 1);
    ck_assert_int_eq(checkpoint_read(t, path, &e), ERR_USAGE);
    ck_assert_msg(strstr(e.text, "other data, settings"), "%s", e.text);
    trainer_close(t);
    free(whole);
    tiny_model_free(m);
}
END_TEST

START_TEST(a_damaged_checkpoint_is_told)
{
    struct tiny_model *m = tiny_new(0, DTYPE_F32, 9);
    struct trainer *t = tiny_trainer(m, tiny_config(), 1);
    char path[400];
    struct error e;
    FILE *f;

    snprintf(path, sizeof path, "%s/bad.checkpoint", support_tmpdir());
    ck_assert_int_eq(checkpoint_write(t, path, &e), 0);
    f = fopen(path, "r+");
    fseek(f, 400, SEEK_SET);
    fputc(0x55, f);
    fclose(f);
    ck_assert_int_eq(checkpoint_read(t, path, &e), ERR_MODEL);
    ck_assert_int_eq(truncate(path, 30), 0);
    ck_assert_int_eq(checkpoint_read(t, path, &e), ERR_MODEL);
    ck_assert_int_eq(checkpoint_write(t, "/dev/full/x", &e), ERR_IO);
    trainer_close(t);
    tiny_model_free(m);
}
END_TEST

/* Ends what asks it when *ctx questions were asked. */
static bool later(void *ctx)
{
    return --*(int *)ctx < 0;
}

START_TEST(an_interrupted_step_leaves_nothing)
{
    int left = 1 << 20;
    const struct stop stop = {later, &left};
    struct tiny_model *m = tiny_new(0, DTYPE_F32, 9);
    struct trainer_options o = {.loaded = &m->model, .data = tiny_data(5), .config = tiny_config(),
                                .threads = 1, .stop = &stop};
    struct trainer *t;
    struct train_step s;
    struct error e;
    size_t n;
    float *whole = train(m, tiny_config(), 1, &n);

    ck_assert_int_eq(trainer_open(&t, &o, &e), 0);
    for (int after = 0; trainer_state(t).step < trainer_config(t)->steps; after = (after + 3) % 8) {
        left = after;
        ck_assert_int_eq(trainer_step(t, &s, &e), ERR_CANCELLED);
        left = 1 << 20;
        ck_assert_int_eq(trainer_step(t, &s, &e), 0);
    }
    ck_assert_int_eq(memcmp(trainer_modules(t)->values, whole, n), 0);
    trainer_close(t);
    left = 2;
    ck_assert_int_eq(trainer_open(&t, &o, &e), ERR_CANCELLED);
    free(whole);
    tiny_model_free(m);
}
END_TEST

START_TEST(a_loss_that_is_no_number_keeps_the_last_sound_values)
{
    struct tiny_model *m = tiny_new(0, DTYPE_F32, 9);
    struct trainer *t = tiny_trainer(m, tiny_config(), 2);
    const struct modules *x = trainer_modules(t);
    struct train_step s;
    struct error e;

    ck_assert_int_eq(trainer_step(t, &s, &e), 0);
    for (size_t i = 0; i < x->n_values; i++)
        x->values[i] = NAN;
    ck_assert_int_eq(trainer_step(t, &s, &e), ERR_VALUE);
    ck_assert_msg(strstr(e.text, "smaller lr"), "%s", e.text);
    for (size_t i = 0; i < x->n_values; i++)
        ck_assert(isfinite(x->values[i]));
    ck_assert_int_eq(trainer_state(t).step, 1);
    trainer_close(t);
    tiny_model_free(m);
}
END_TEST

START_TEST(a_loss_that_stays_above_the_bound_ends_the_run)
{
    struct tiny_model *m = tiny_new(0, DTYPE_F32, 9);
    struct train_config c = tiny_config();
    struct trainer *t;
    struct train_step s;
    struct error e;
    float sound;
    int rc = 0;

    c.steps = 20;
    t = tiny_trainer(m, c, 2);
    ck_assert_int_eq(trainer_step(t, &s, &e), 0);
    sound = trainer_modules(t)->values[0];
    trainer_go_on(t, (struct train_state){.step = 1, .bound = 1e-3});
    while (rc == 0 && trainer_state(t).step < c.steps)
        rc = trainer_step(t, &s, &e);
    ck_assert_int_eq(rc, ERR_VALUE);
    ck_assert_int_eq(trainer_state(t).step, 8); /* one, and seven of the eight above it */
    ck_assert_msg(strstr(e.text, "diverges"), "%s", e.text);
    ck_assert(trainer_modules(t)->values[0] == sound);
    trainer_close(t);
    tiny_model_free(m);
}
END_TEST

/* ---- what is refused ---- */

static void refuse_data(const char *text, const char *says)
{
    struct tiny_model *m = tiny_new(0, DTYPE_F32, 9);
    struct train_data d;
    struct error e;
    char path[400];
    FILE *f;

    snprintf(path, sizeof path, "%s/bad.jsonl", support_tmpdir());
    f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    ck_assert_msg(train_data_read(&d, path, &m->model, 8, NULL, &e) == ERR_INPUT, "%s", text);
    ck_assert_msg(strstr(e.text, says) != NULL, "'%s' lacks '%s'", e.text, says);
    ck_assert_ptr_null(strchr(e.text, '\n'));
    tiny_model_free(m);
}

START_TEST(bad_lines_are_named)
{
    refuse_data("", "no line");
    refuse_data("\n\n{\n", "bad.jsonl:3: ");
    refuse_data("[1]\n", ":1: a JSON object");
    refuse_data("{}", "'messages'");
    refuse_data("{\"input_ids\": [1], \"messages\": []}", "one of");
    refuse_data("{\"input_ids\": [1, 2], \"loss_mask\": [1]}", "same length");
    refuse_data("{\"input_ids\": [1, \"x\"], \"loss_mask\": [0, 1]}", "element 1");
    refuse_data("{\"input_ids\": [1, -4], \"loss_mask\": [0, 1]}", "no id");
    refuse_data("{\"input_ids\": [1, 48], \"loss_mask\": [0, 1]}", "past the model's 48");
    refuse_data("{\"input_ids\": [1, 2], \"loss_mask\": [0, 2]}", "0 or 1");
    refuse_data("{\"input_ids\": [1, 2], \"loss_mask\": [1, 0]}", "nothing to learn");
    refuse_data("{\"input_ids\": [1,2,3,4,5,6,7,8,9], \"loss_mask\": [0,1,1,1,1,1,1,1,1]}",
                "9 tokens are more than the context of 8");
    refuse_data("\n{\"prompt\": \"a\", \"prompt\": \"b\", \"completion\": \"c\"}",
                ":2: JSON: not valid JSON: line 1, column 24: duplicate object key near "
                "'\"prompt\"'");
    refuse_data("{\"messages\": [{\"role\": \"user\", \"ro\\u006ce\": \"user\"}]}",
                "duplicate object key near '\"ro\\u006ce\"'");
    refuse_data("{\"prompt\": 3, \"completion\": \"x\"}", "must be strings");
}
END_TEST

static void refuse_setting(const char *key, const char *text)
{
    struct train_config c;
    struct error e;

    train_config_init(&c);
    ck_assert_msg(train_config_set(&c, key, text, &e) == ERR_USAGE, "%s: %s", key, text);
    ck_assert_ptr_nonnull(strstr(e.text, key));
}

START_TEST(settings_are_checked)
{
    static const char *const bad[][2] = {
        {"steps", "0"},   {"steps", "1.5"},    {"batch", "-1"},    {"lr", "nan"},
        {"lr", "1e99"},   {"betas", "0.9"},    {"betas", "1,2"},   {"base", "q9"},
        {"targets", "x"}, {"experts", "maybe"}, {"rank", "99999"}, {"nothing", "1"},
        {"seed", "-1"},   {"eps", "0"},        {"clip", ""},       {"min_lr_ratio", "2"}};
    struct train_config c;
    struct error e;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuse_setting(bad[i][0], bad[i][1]);
    train_config_init(&c);
    ck_assert_int_eq(train_config_set(&c, "targets", "attention", &e), 0);
    ck_assert(c.attention && !c.experts);
    c.epochs = 2;
    ck_assert_int_eq(train_config_settle(&c, 33, &e), 0);
    ck_assert_int_eq(c.steps, 9);
    c.warmup_steps = 10;
    ck_assert_int_eq(train_config_settle(&c, 33, &e), ERR_USAGE);
}
END_TEST

static int settings_of(const char *text, struct train_config *c, struct error *e)
{
    static struct options o;
    char path[400];
    FILE *f;
    int rc;

    snprintf(path, sizeof path, "%s/run.yaml", support_tmpdir());
    f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    ck_assert_int_eq(options_init(&o, e), 0);
    char *argv[] = {"moetop", "--finetune", "x", "--train-config", path, "--alpha", "3"};
    ck_assert_int_eq(options_parse(&o, 7, argv, e), 0);
    rc = train_settings(c, &o, e);
    options_release(&o);
    return rc;
}

START_TEST(settings_come_from_yaml_and_json_and_flags)
{
    struct train_config c;
    struct error e;

    ck_assert_int_eq(settings_of("{\n\t\"steps\": 20, \"betas\": [0.8, 0.99],\n \"alpha\": 6, "
                                 "\"experts\": false, \"data\": \"../data\"}",
                                 &c, &e), 0);
    ck_assert(c.steps == 20 && c.beta1 == 0.8 && c.beta2 == 0.99 && c.alpha == 3 && !c.experts);
    ck_assert_int_eq(settings_of("lr: 0.01\nbase: q8_0\nepochs: 2\n", &c, &e), 0);
    ck_assert(c.lr == 0.01 && c.base == DTYPE_Q8_0 && c.epochs == 2);
    ck_assert_int_eq(settings_of("lr: 0.01\nepoch: 2\n", &c, &e), ERR_USAGE);
    ck_assert_msg(strstr(e.text, ":2: ") && strstr(e.text, "did you mean 'epochs'"), "%s", e.text);
    ck_assert_int_eq(settings_of("lr: 0.01\nsteps: 2\nlr: 0.1\n", &c, &e), ERR_USAGE);
    ck_assert_msg(strstr(e.text, ":3: 'lr' is set in line 1"), "%s", e.text);
    ck_assert_int_eq(settings_of("{\"data\": \"a\",\n\"data\": \"b\"}", &c, &e), ERR_USAGE);
    ck_assert_msg(strstr(e.text, ":2: 'data' is set in line 1"), "%s", e.text);
    ck_assert_int_eq(settings_of("lr: {a: 1}\n", &c, &e), ERR_USAGE);
    ck_assert_int_eq(settings_of("detach_routing: true\n", &c, &e), ERR_USAGE);
    ck_assert_int_eq(settings_of("- 1\n", &c, &e), ERR_USAGE);
    ck_assert_int_eq(settings_of("a: [\n", &c, &e), ERR_USAGE);
}
END_TEST

START_TEST(what_has_no_way_back_is_refused_by_name)
{
    struct tiny_model *m = tiny_new(0, DTYPE_F32, 9);
    struct base b;
    struct error e;

    m->model.family = "gemma4";
    ck_assert_int_eq(base_of(&b, &m->model, TRAIN_BASE_KEEP, &e), ERR_MODEL);
    ck_assert_msg(strstr(e.text, "gemma4") && strstr(e.text, "phimoe"), "%s", e.text);
    base_release(&b);
    m->model.family = "phimoe";
    m->model.hp.layers[1].mixer.sinks = true;
    ck_assert_int_eq(base_of(&b, &m->model, TRAIN_BASE_KEEP, &e), ERR_MODEL);
    ck_assert_msg(strstr(e.text, "layer 1") && strstr(e.text, "sinks"), "%s", e.text);
    base_release(&b);
    tiny_model_free(m);
}
END_TEST

/* ---- families ---- */

static void model_path(char *out, size_t size, const char *name)
{
    char below[200];

    snprintf(below, sizeof below,
             strncmp(name, "phimoe", 6) == 0 ? "golden/phimoe/%s" : "golden/families/%s", name);
    snprintf(out, size, "%s", support_path(below));
}

static const char *const trained[] = {"phimoe-quirk-f32", "qwen3_moe", "qwen2_moe", "olmoe",
                                      "mixtral", "granitemoe", "llama", "qwen3", "gpt2"};
#define TRAINED ((int)(sizeof trained / sizeof *trained))

START_TEST(every_family_learns)
{
    char path[600], saved[600];
    struct trainer_options o = {.model = path, .data = tiny_data(4), .config = tiny_config(),
                                .threads = 2};
    struct trainer *t;
    struct train_step s;
    struct error e;
    double first = 0;

    model_path(path, sizeof path, trained[_i]);
    o.config.steps = 15;
    o.config.batch = 4;
    o.config.accumulation = 1;
    o.config.init_b = 0;
    ck_assert_msg(trainer_open(&t, &o, &e) == 0, "%s", e.text);
    while (trainer_state(t).step < o.config.steps) {
        ck_assert_msg(trainer_step(t, &s, &e) == 0, "%s", e.text);
        first = s.step == 1 ? s.loss : first;
    }
    ck_assert_msg(s.loss < 0.8 * first, "%s: %g after %g", trained[_i], s.loss, first);
    /* what was learned goes on from its files */
    snprintf(saved, sizeof saved, "%s/%s", support_tmpdir(), trained[_i]);
    ck_assert_msg(save_adapter(trainer_modules(t), trainer_base(t), saved, &e) == 0, "%s", e.text);
    trainer_close(t);
    if (strcmp(trained[_i], "granitemoe") == 0)
        strcat(saved, "/adapter.gguf");
    o.init = saved;
    ck_assert_msg(trainer_open(&t, &o, &e) == 0, "%s", e.text);
    ck_assert_msg(trainer_step(t, &s, &e) == 0, "%s", e.text);
    ck_assert_msg(s.loss < 0.8 * first, "%s: %g after %g, read again", trained[_i], s.loss, first);
    trainer_close(t);
}
END_TEST

START_TEST(other_families_are_refused_by_name)
{
    static const char *const others[] = {
        "bailing_hybrid", "deepseek_v2", "deepseek_v3",   "ernie4_5_moe", "gemma4",
        "glm4_moe",       "gpt_oss",     "glm4_moe_lite", "lfm2_moe",     "nemotron_h",
        "qwen3_5_moe",    "qwen3_next",  "granitemoehybrid"};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char path[600];
        struct trainer_options o = {.model = path, .data = tiny_data(4), .config = tiny_config(),
                                    .threads = 1};
        struct trainer *t;
        struct error e;

        model_path(path, sizeof path, others[i]);
        ck_assert_msg(trainer_open(&t, &o, &e) == ERR_MODEL, "%s", others[i]);
        ck_assert_msg(strstr(e.text, "of the family ") && strstr(e.text, "phimoe, qwen3_moe"),
                      "%s: %s", others[i], e.text);
    }
}
END_TEST

/* Attention alone of a model whose experts' place is dense, with names that PEFT has. */
START_TEST(gpt2_attention_has_the_names_of_peft)
{
    static const char *const wanted[] = {
        "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight",
        "base_model.model.transformer.h.0.attn.c_attn.lora_B.weight",
        "base_model.model.transformer.h.1.attn.c_proj.lora_A.weight"};
    char path[600], saved[600], file[700];
    struct trainer_options o = {.model = path, .data = tiny_data(4), .config = tiny_config(),
                                .threads = 2};
    struct trainer *t;
    struct train_step s;
    struct weight_file *f;
    struct error e;

    model_path(path, sizeof path, "gpt2");
    o.config.experts = false;
    ck_assert_msg(trainer_open(&t, &o, &e) == 0, "%s", e.text);
    ck_assert_int_eq(trainer_step(t, &s, &e), 0);
    snprintf(saved, sizeof saved, "%s/gpt2-attention", support_tmpdir());
    ck_assert_msg(save_adapter(trainer_modules(t), trainer_base(t), saved, &e) == 0, "%s", e.text);
    trainer_close(t);
    snprintf(file, sizeof file, "%s/adapter_model.safetensors", saved);
    ck_assert_msg(weight_file_open(&f, file, false, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        ck_assert_msg(weight_file_find(f, wanted[i]) != NULL, "%s", wanted[i]);
    ck_assert_ptr_null(
        weight_file_find(f, "base_model.model.transformer.h.0.mlp.c_fc.lora_A.weight"));
    weight_file_close(f);
    o.init = saved;
    ck_assert_msg(trainer_open(&t, &o, &e) == 0, "%s", e.text);
    ck_assert_int_eq(trainer_step(t, &s, &e), 0);
    trainer_close(t);
}
END_TEST

/* ---- types of the base ---- */

static const enum dtype rounded[] = {DTYPE_F16,  DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1,
                                     DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_Q4_K,
                                     DTYPE_Q5_K, DTYPE_Q6_K};
#define ROUNDED ((int)(sizeof rounded / sizeof *rounded))

/* Panels at any place are pieces of the rows that every other part of the program reads. */
static void check_panels(const struct linear *w)
{
    float row[2 * BLOCKS], room[3 * BLOCKS];
    ptrdiff_t ld;

    for (int r = 0; r + 3 <= w->rows; r += 7)
        for (int c = 0; c < w->cols; c += BLOCKS) {
            int count = w->cols - c < BLOCKS ? w->cols - c : BLOCKS;
            const float *panel = linear_panel(w, r, 3, c, count, room, &ld);

            for (int i = 0; i < 3; i++) {
                row_to_f32(w->type, w->data + (size_t)(r + i) * w->row_bytes, w->cols, row);
                ck_assert_int_eq(memcmp(panel + i * ld, row + c, (size_t)count * sizeof *row), 0);
            }
        }
}

START_TEST(any_type_of_weights_is_trained_on)
{
    enum dtype type = rounded[_i];
    struct tiny_model *m = tiny_sized(3, DTYPE_F32, 9, BLOCKS, 2 * BLOCKS);
    struct train_config c = tiny_config();
    struct trainer *t;
    struct base_layer *l;
    struct train_step s;
    struct error e;
    double first = 0, plain = 0;

    t = tiny_trainer(m, c, 1);
    ck_assert_int_eq(trainer_gradients(t, &s, &e), 0);
    plain = s.loss;
    trainer_close(t);
    c.base = type;
    c.steps = 12;
    t = tiny_trainer(m, c, 2);
    l = &trainer_base(t)->layers[1];
    ck_assert_int_eq(l->experts[2][0].type, type);
    ck_assert_int_eq(l->experts[2][2].type, type);
    check_panels(&l->experts[2][0]);
    check_panels(&l->experts[3][2]);
    check_panels(&l->o);
    while (trainer_state(t).step < c.steps) {
        ck_assert_msg(trainer_step(t, &s, &e) == 0, "%s", e.text);
        first = s.step == 1 ? s.loss : first;
    }
    ck_assert_msg(fabs(first / plain - 1) < 0.25, "%g with F32, %g", plain, first);
    ck_assert_msg(s.loss < 0.9 * first, "%g after %g", s.loss, first);
    trainer_close(t);
    tiny_model_free(m);
}
END_TEST

/* ---- golden runs ---- */

static const char *const runs[] = {"phimoe-f32",  "phimoe-b0",   "phimoe-accum2", "phimoe-skip",
                                   "phimoe-attn", "phimoe-bf16", "phimoe-q8_0",   "phimoe-q4_0",
                                   "qwen3_moe-f32", "llama-f32", "gpt2-f32"};
#define RUNS ((int)(sizeof runs / sizeof *runs))

struct golden {
    json_t *run, *log;
    char dir[600], data[700];
};

static json_t *read_json(const char *path)
{
    json_t *o = json_load_file(path, 0, NULL);

    ck_assert_msg(o != NULL, "%s", path);
    return o;
}

static bool golden_open(struct golden *g, const char *name)
{
    char below[120], path[700];
    const char *run;

    snprintf(below, sizeof below, "lora/train/%s/run.json", name);
    if (!(run = support_shared(below)))
        return false;
    snprintf(g->dir, sizeof g->dir, "%.*s", (int)(strrchr(run, '/') - run), run);
    snprintf(g->data, sizeof g->data, "%s/../../..", g->dir);
    g->run = read_json(run);
    snprintf(path, sizeof path, "%s/log.json", g->dir);
    g->log = read_json(path);
    return true;
}

static void golden_options(const struct golden *g, struct trainer_options *o, char paths[4][1400])
{
    const char *key;
    struct error e;
    json_t *v;

    snprintf(paths[0], 1400, "%s/%s", g->data, json_string_value(json_object_get(g->run,
                                                                                 "checkpoint")));
    snprintf(paths[1], 1400, "%s/../data/train.tokens.jsonl", g->dir);
    snprintf(paths[2], 1400, "%s/../data/valid.tokens.jsonl", g->dir);
    snprintf(paths[3], 1400, "%s/%s", g->dir,
             json_string_value(json_object_get(g->run, "initial")));
    *o = (struct trainer_options){.model = paths[0], .data = paths[1], .valid = paths[2],
                                  .init = paths[3], .threads = 2};
    train_config_init(&o->config);
    json_object_foreach(g->run, key, v)
    {
        char *text = json_is_string(v) ? strdup(json_string_value(v))
                                       : json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));

        if (strcmp(key, "betas") == 0) {
            o->config.beta1 = json_number_value(json_array_get(v, 0));
            o->config.beta2 = json_number_value(json_array_get(v, 1));
        } else if (!train_config_ignores(key) && strcmp(key, "detach_routing") != 0) {
            ck_assert_msg(train_config_set(&o->config, key, text, &e) == 0, "%s", e.text);
        }
        free(text);
    }
}

static void near(const char *run, const char *what, int step, double have, double want,
                 double bound)
{
    ck_assert_msg(fabs(have - want) <= bound * fabs(want), "%s: %s of step %d is %.9g, golden %.9g",
                  run, what, step, have, want);
}

static void compare_values(const char *run, const struct modules *m, const struct modules *first,
                           const struct modules *last)
{
    double differs = 0.0, update = 0.0, worst = 0.0;

    ck_assert_uint_eq(m->n_values, last->n_values);
    for (int i = 0; i < m->n; i++)
        for (int of_b = 0; of_b < 2; of_b++) {
            const struct module *x = &m->list[i];
            size_t at = (size_t)((of_b ? x->b : x->a) - m->values),
                   n = (size_t)x->rank * (size_t)(of_b ? x->rows : x->cols);
            double d = 0.0, u = 0.0;

            for (size_t k = at; k < at + n; k++) {
                d += pow((double)m->values[k] - (double)last->values[k], 2);
                u += pow((double)last->values[k] - (double)first->values[k], 2);
            }
            differs += d;
            update += u;
            worst = u > 0 && d / u > worst ? d / u : worst;
            ck_assert_msg(u > 0 || d == 0, "%s: %s moved", run, x->name);
        }
    ck_assert_msg(sqrt(differs / update) < 2e-3 && sqrt(worst) < 2e-2,
                  "%s: off by %g of the update, the worst tensor by %g", run,
                  sqrt(differs / update), sqrt(worst));
}

static void same_values(const char *run, const struct modules *a, const struct modules *b)
{
    ck_assert_uint_eq(a->n_values, b->n_values);
    for (int i = 0; i < a->n; i++)
        ck_assert(fabsf(a->list[i].scale / b->list[i].scale - 1.0f) < 1e-6f);
    for (size_t i = 0; i < a->n_values; i++)
        ck_assert_msg(fabsf(a->values[i] - b->values[i]) <= 1e-6f * fabsf(b->values[i]),
                      "%s: value %zu was %g and is %g", run, i, (double)b->values[i],
                      (double)a->values[i]);
}

START_TEST(golden_runs_are_followed)
{
    const char *run = runs[_i];
    static char paths[4][1400], final[700], saved[500];
    struct golden g;
    struct trainer_options o;
    struct trainer *t, *first, *last;
    struct error e;
    double valid;

    if (!golden_open(&g, run))
        return;
    golden_options(&g, &o, paths);
    ck_assert_msg(trainer_open(&t, &o, &e) == 0, "%s", e.text);
    ck_assert_msg(trainer_open(&first, &o, &e) == 0, "%s", e.text);
    while (trainer_state(t).step < trainer_config(t)->steps) {
        const json_t *want;
        struct train_step s;

        ck_assert_msg(trainer_step(t, &s, &e) == 0, "%s", e.text);
        want = json_array_get(json_object_get(g.log, "steps"), (size_t)s.step - 1);
        near(run, "loss", s.step, s.loss, json_number_value(json_object_get(want, "loss")), 2e-4);
        near(run, "norm", s.step, s.grad_norm,
             json_number_value(json_object_get(want, "grad_norm")), 5e-4);
        near(run, "rate", s.step, s.lr, json_number_value(json_object_get(want, "lr")), 1e-6);
    }
    ck_assert_int_eq(trainer_validate(t, &valid, &e), 0);
    near(run, "validation", 0, valid, json_number_value(json_object_get(g.log, "valid_loss")),
         2e-4);
    /* what was saved is read back, by either file, as what it is */
    snprintf(saved, sizeof saved, "%s/%s", support_tmpdir(), run);
    ck_assert_msg(save_adapter(trainer_modules(t), trainer_base(t), saved, &e) == 0, "%s", e.text);
    snprintf(final, sizeof final, "%s/final", g.dir);
    o.init = final;
    ck_assert_msg(trainer_open(&last, &o, &e) == 0, "%s", e.text);
    compare_values(run, trainer_modules(t), trainer_modules(first), trainer_modules(last));
    trainer_close(first);
    for (int gguf = 0; gguf < 2; gguf++) {
        snprintf(final, sizeof final, "%s%s", saved, gguf ? "/adapter.gguf" : "");
        ck_assert_msg(trainer_open(&first, &o, &e) == 0, "%s", e.text);
        same_values(run, trainer_modules(first), trainer_modules(t));
        trainer_close(first);
    }
    trainer_close(last);
    trainer_close(t);
    json_decref(g.run);
    json_decref(g.log);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("train");
    TCase *c = tcase_create("train");

    tcase_add_loop_test(c, gradients_are_those_of_finite_differences, 0, KINDS);
    tcase_add_loop_test(c, threads_do_not_show, 0, KINDS);
    tcase_add_loop_test(c, what_is_kept_does_not_show, 0, KINDS);
    tcase_add_test(c, a_run_that_was_cut_ends_with_the_same_bits);
    tcase_add_test(c, a_damaged_checkpoint_is_told);
    tcase_add_test(c, an_interrupted_step_leaves_nothing);
    tcase_add_test(c, a_loss_that_is_no_number_keeps_the_last_sound_values);
    tcase_add_test(c, a_loss_that_stays_above_the_bound_ends_the_run);
    tcase_add_test(c, bad_lines_are_named);
    tcase_add_test(c, settings_are_checked);
    tcase_add_test(c, settings_come_from_yaml_and_json_and_flags);
    tcase_add_test(c, what_has_no_way_back_is_refused_by_name);
    tcase_add_loop_test(c, every_family_learns, 0, TRAINED);
    tcase_add_test(c, other_families_are_refused_by_name);
    tcase_add_test(c, gpt2_attention_has_the_names_of_peft);
    tcase_add_loop_test(c, any_type_of_weights_is_trained_on, 0, ROUNDED);
    tcase_add_loop_test(c, golden_runs_are_followed, 0, RUNS);
    suite_add_tcase(s, c);
    return support_run(s);
}
