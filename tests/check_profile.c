/* Expert use: counts and figures by hand, profiles written and read back, other models refused,
 * imatrix files; what a file is read as. */
#include "app/placement/profile.h"
#include "app/setup/profile_file.h"
#include "engine/base/mem.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/support.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const float ones[64] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

START_TEST(figures_by_hand)
{
    /* 2 layers, 4 experts, 2 used, tokens (0,1) (1,2) (1,2) (3,0) in layer 0; always (0,1) in layer
     * 1 */
    static const int experts[] = {0, 1, 1, 2, 1, 2, 3, 0, 0, 1, 0, 1, 0, 1, 0, 1};
    struct usage u;
    struct usage_layer a, b;

    ck_assert_int_eq(usage_init(&u, 2, 4, 2, NULL), 0);
    usage_add(&u, 4, 0, experts, ones);
    ck_assert_uint_eq(u.tokens, 4);
    ck_assert_uint_eq(u.follow, 3);
    ck_assert(u.count[0] == 2 && u.count[1] == 3 && u.count[2] == 2 && u.count[3] == 1);
    ck_assert(u.count[4] == 4 && u.count[5] == 4 && u.count[6] == 0);
    a = usage_layer(&u, 0);
    b = usage_layer(&u, 1);
    ck_assert(fabs(a.entropy -
                   (-2 * 0.25 * log2(0.25) - 0.375 * log2(0.375) - 0.125 * log2(0.125))) < 1e-9);
    ck_assert(fabs(a.imbalance - 1.5) < 1e-9);
    ck_assert(fabs(a.unused) < 1e-9);
    ck_assert(fabs(a.overlap - (1 + 2 + 0) / 6.0) < 1e-9);
    ck_assert(fabs(a.overlap_chance - (0.25 + 0.5625 + 0.25 + 0.0625) / 2) < 1e-9);
    ck_assert(fabs(b.entropy - 1) < 1e-9 && fabs(b.entropy_share - 0.5) < 1e-9 &&
              fabs(b.unused - 0.5) < 1e-9);
    ck_assert(fabs(b.overlap - 1) < 1e-9 && fabs(b.overlap_chance - 1) < 1e-9);
    ck_assert(fabs(b.below - (2 + 1 + 1 + 1) / 8.0) < 1e-9);
    ck_assert(fabs(b.below_chance - (0.5 * 1 + 0.75 * 1) / 2) < 1e-9);
    usage_clear(&u);
    ck_assert_uint_eq(u.tokens, 0);
    ck_assert(usage_layer(&u, 0).entropy == 0);
    usage_release(&u);
}
END_TEST

START_TEST(chunks_count_like_one_pass)
{
    int all[2 * 30 * 2];
    float w[2 * 30 * 2];
    struct usage whole, parts;

    srand(3);
    for (int i = 0; i < 120; i++) {
        all[i] = (i & 1) ? 4 + rand() % 4 : rand() % 4;
        w[i] = (float)(rand() % 100) * 0.01f;
    }
    usage_init(&whole, 2, 8, 2, NULL);
    usage_init(&parts, 2, 8, 2, NULL);
    usage_add(&whole, 30, 0, all, w);
    for (int at = 0; at < 30;) {
        int n = 1 + at % 7, e[28], k = 0;
        float v[28];

        n = n > 30 - at ? 30 - at : n;
        for (int l = 0; l < 2; l++)
            for (int i = 0; i < 2 * n; i++, k++) {
                e[k] = all[l * 60 + 2 * at + i];
                v[k] = w[l * 60 + 2 * at + i];
            }
        usage_add(&parts, n, at, e, v);
        at += n;
    }
    for (int l = 0; l < 2; l++) {
        struct usage_layer a = usage_layer(&whole, l), b = usage_layer(&parts, l);

        ck_assert(fabs(a.overlap - b.overlap) < 1e-12 && fabs(a.below - b.below) < 1e-12 &&
                  fabs(a.entropy - b.entropy) < 1e-12);
    }
    ck_assert(fabs(usage_likeness(&whole, &parts) - 1) < 1e-12);
    usage_add(&parts, 1, 0, all, w); /* a new text does not follow the old one */
    ck_assert_uint_eq(parts.follow, 29);
    usage_release(&whole);
    usage_release(&parts);
}
END_TEST

START_TEST(likeness)
{
    static const int a[] = {0, 1}, b[] = {2, 3};
    struct usage u, v;

    usage_init(&u, 1, 4, 2, NULL);
    usage_init(&v, 1, 4, 2, NULL);
    usage_add(&u, 1, 0, a, ones);
    usage_add(&v, 1, 0, b, ones);
    ck_assert(usage_likeness(&u, &v) == 0);
    usage_add(&v, 1, 1, a, ones);
    ck_assert(fabs(usage_likeness(&u, &v) - 0.5) < 1e-12);
    usage_release(&u);
    usage_release(&v);
}
END_TEST

static const char *file(const char *name, const void *data, size_t n)
{
    static char path[400];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", support_tmpdir(), name);
    f = fopen(path, "wb");
    fwrite(data, 1, n, f);
    fclose(f);
    return path;
}

static char *sample_json(double expert_ns)
{
    static const int experts[] = {0, 1, 1, 2, 1, 2, 3, 0, 0, 1, 0, 1, 0, 1, 0, 1};
    struct profile_facts facts = {.model = "tiny \"q\"",
                                  .type = "q8_0",
                                  .hash = 0xfedcba9876543210u,
                                  .source = "a\\b\n",
                                  .n_devices = 1};
    double each[8] = {1000, 2000};
    struct usage u;
    char *text;
    size_t n;

    strcpy(facts.devices[0].name, "cpu");
    facts.devices[0].expert_ns = expert_ns;
    facts.expert_ns = each;
    usage_init(&u, 2, 4, 2, NULL);
    usage_add(&u, 4, 0, experts, ones);
    ck_assert_int_eq(profile_json(&u, &facts, &text, &n, NULL), 0);
    ck_assert_uint_eq(strlen(text), n);
    usage_release(&u);
    return text;
}

/* Two routed experts of four and a shared one, a dense layer, two routed experts of three: only
 * choices count, and what has none says nothing. */
START_TEST(layers_may_differ)
{
    static const int experts[] = {0, 1, 4, 0, 2, 4, 0, -1, -1, 0, -1, -1, 1, 2, -1, 1, 2, -1};
    struct layer_shape shapes[3] = {{.ffn = {.experts = 4, .used = 2, .shared = 1}},
                                    {.ffn = {.kind = FFN_DENSE, .shared = 1}},
                                    {.ffn = {.experts = 3, .used = 2}}};
    struct hparams hp = {.n_layers = 3, .layers = shapes};
    struct profile_facts facts = {.hash = 1};
    struct usage u, back;
    struct error e = {0};
    struct usage_layer a, c, m;
    char *text, *out = NULL;
    size_t n;
    FILE *f = open_memstream(&out, &n);

    hparams_count(&hp);
    ck_assert_int_eq(usage_model_init(&u, &hp, NULL), 0);
    ck_assert(u.n_experts == 5 && u.n_used == 3);
    usage_add(&u, 2, 0, experts, ones);
    ck_assert(u.count[0] == 2 && u.count[4] == 2 && u.count[5] == 2 && u.count[6] == 0);
    a = usage_layer(&u, 0);
    c = usage_layer(&u, 2);
    m = usage_mean(&u);
    ck_assert(a.chooses && !usage_layer(&u, 1).chooses && c.chooses);
    ck_assert(fabs(a.entropy - 1.5) < 1e-9 && fabs(a.entropy_share - 0.75) < 1e-9);
    ck_assert(fabs(a.unused - 0.25) < 1e-9 && fabs(a.overlap - 0.5) < 1e-9);
    ck_assert(fabs(c.entropy_share - 1 / log2(3)) < 1e-9 && fabs(c.overlap - 1) < 1e-9);
    ck_assert(fabs(m.entropy_share - (0.75 + 1 / log2(3)) / 2) < 1e-9);
    ck_assert(m.below == 0); /* no two neighbours choose */
    ck_assert(fabs(usage_likeness(&u, &u) - 1) < 1e-9);
    profile_print(f, &u);
    fclose(f);
    ck_assert_ptr_nonnull(strstr(out, "    1  no choice"));
    free(out);
    ck_assert_int_eq(profile_json(&u, &facts, &text, &n, NULL), 0);
    ck_assert_msg(profile_read(&back, &facts, file("uneven.json", text, n), &e) == 0, "%s", e.text);
    for (int l = 0; l < 3; l++) {
        ck_assert_int_eq(back.routed[l], shapes[l].ffn.experts);
        ck_assert_int_eq(back.called[l], shapes[l].ffn.used);
    }
    mem_free(text);
    profile_facts_release(&facts);
    usage_release(&back);
    usage_release(&u);
}
END_TEST

START_TEST(profiles_read_back)
{
    char *text = sample_json(12345);
    const char *path = file("p.json", text, strlen(text));
    struct profile_facts facts;
    struct usage u;
    struct error e = {0};

    ck_assert_msg(profile_read(&u, &facts, path, &e) == 0, "%s", e.text);
    ck_assert_int_eq(u.n_layers, 2);
    ck_assert_int_eq(u.n_experts, 4);
    ck_assert_int_eq(u.n_used, 2);
    ck_assert_uint_eq(u.tokens, 4);
    ck_assert(u.count[1] == 3 && u.count[4] == 4 && u.weight[1] == 3);
    ck_assert_str_eq(facts.model, "tiny \"q\"");
    ck_assert_str_eq(facts.source, "a\\b\n");
    ck_assert_uint_eq(facts.hash, 0xfedcba9876543210u);
    ck_assert_int_eq(facts.n_devices, 1);
    ck_assert(fabs(facts.devices[0].expert_ns - 12345) < 1);
    ck_assert_int_eq(profile_check(&u, &facts, path, "m", 0xfedcba9876543210u, 2, 4, 2, &e), 0);
    ck_assert_int_eq(profile_check(&u, &facts, path, "m", 1, 2, 4, 2, &e), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(e.text, "another model or quantisation"));
    ck_assert_int_eq(profile_check(&u, &facts, path, "m", 0xfedcba9876543210u, 3, 4, 2, &e),
                     ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(e.text, "3 of 4"));
    usage_release(&u);
    profile_facts_release(&facts);
    mem_free(text);
}
END_TEST

START_TEST(damaged_profiles_are_refused)
{
    char *text = sample_json(0);
    struct profile_facts facts;
    struct usage u;
    struct error e = {0};
    size_t n = strlen(text);

    for (size_t cut = 0; cut < n; cut += 13)
        ck_assert_int_lt(profile_read(&u, &facts, file("cut.json", text, cut), &e), 0);
    /* any digit or bracket changed: an error or numbers, never a crash */
    for (size_t i = 0; i < n; i++) {
        char kept = text[i];

        if (!strchr("0123456789[]{}:,", kept))
            continue;
        text[i] = kept == '9' ? '-' : '9';
        if (profile_read(&u, &facts, file("odd.json", text, n), &e) == 0) {
            usage_layer(&u, 0);
            usage_release(&u);
        }
        text[i] = kept;
    }
    ck_assert_int_eq(profile_read(&u, &facts, file("x.json", "{}", 2), &e), ERR_INPUT);
    ck_assert_int_eq(profile_read(&u, &facts, "/nonexistent", &e), ERR_IO);
    mem_free(text);
}
END_TEST

/* ---- imatrix: a GGUF with general.type and the counts of 2 layers of 4 experts ---- */

static unsigned char gguf[2000];
static size_t gguf_n;

static void put(const void *p, size_t n)
{
    memcpy(gguf + gguf_n, p, n);
    gguf_n += n;
}

static void put_u32(uint32_t v)
{
    put(&v, 4);
}
static void put_u64(uint64_t v)
{
    put(&v, 8);
}

static void put_name(const char *s)
{
    put_u64(strlen(s));
    put(s, strlen(s));
}

static void make_imatrix(const char *suffix)
{
    static const float counts[2][4] = {{10, 0, 30, 2.0f}, {7, 7, 7, 7}};
    char name[64];

    gguf_n = 0;
    put("GGUF", 4);
    put_u32(3);
    put_u64(2);
    put_u64(1);
    put_name("general.type");
    put_u32(8);
    put_name("imatrix");
    for (int l = 0; l < 2; l++) {
        snprintf(name, sizeof name, "blk.%d.ffn_gate_exps.weight.%s", l, suffix);
        put_name(name);
        put_u32(2);
        put_u64(1);
        put_u64(4);
        put_u32(0);
        put_u64((uint64_t)l * 32);
    }
    while (gguf_n % 32)
        gguf[gguf_n++] = 0;
    for (int l = 0; l < 2; l++) {
        put(counts[l], 16);
        while (gguf_n % 32)
            gguf[gguf_n++] = 0;
    }
}

START_TEST(imatrix_counts_are_read)
{
    struct profile_facts facts;
    struct usage u;
    struct error e = {0};

    make_imatrix("counts");
    ck_assert_msg(profile_read(&u, &facts, file("imatrix.gguf", gguf, gguf_n), &e) == 0, "%s",
                  e.text);
    ck_assert_int_eq(u.n_layers, 2);
    ck_assert_int_eq(u.n_experts, 4);
    ck_assert(u.count[0] == 10 && u.count[1] == 0 && u.count[2] == 30 && u.count[7] == 7);
    ck_assert_uint_eq(facts.hash, 0);
    ck_assert_int_eq(profile_check(&u, &facts, "f", "m", 99, 2, 4, 2, &e), 0);
    ck_assert_int_eq(profile_check(&u, &facts, "f", "m", 99, 2, 5, 2, &e), ERR_INPUT);
    usage_release(&u);
    make_imatrix("in_sum2");
    ck_assert_int_lt(profile_read(&u, &facts, file("imatrix.gguf", gguf, gguf_n), &e), 0);
    ck_assert_ptr_nonnull(strstr(e.text, "no expert counts"));
}
END_TEST

/* ---- suggestions ---- */

static void skewed(struct usage *u, unsigned seed, int hot)
{
    usage_init(u, 4, 8, 2, NULL);
    for (int t = 0; t < 500; t++) {
        int experts[8];

        for (int l = 0; l < 4; l++) {
            int a = rand_r(&seed) % 100 < hot ? (l + rand_r(&seed) % 2) % 8 : rand_r(&seed) % 8;

            experts[2 * l] = a;
            experts[2 * l + 1] = (a + 1 + rand_r(&seed) % 7) % 8;
        }
        usage_add(u, 1, t, experts, ones);
    }
}

START_TEST(a_hot_set_is_found_where_there_is_one)
{
    struct usage trained, held_out;
    struct suggestion s;
    uint64_t sizes[32];
    char text[300];

    for (int i = 0; i < 32; i++)
        sizes[i] = 100;
    skewed(&trained, 1, 90);
    skewed(&held_out, 2, 90);
    ck_assert_int_eq(suggestion_make(&s, &trained, &held_out, sizes, 850, NULL), 0);
    ck_assert_int_eq(s.experts, 8);
    ck_assert_uint_eq(s.bytes, 800);
    ck_assert(fabs(s.hit_uniform - 0.25) < 1e-12);
    ck_assert(s.hit_held_out > 0.45 && s.hit_trained >= s.hit_held_out - 0.05);
    ck_assert(s.likeness > 0.9);
    ck_assert(s.hot_set);
    ck_assert_ptr_nonnull(strstr(s.verdict, "a hot set: on held-out text"));
    for (int l = 0, n = 0; l < 4; l++, n = 0) {
        for (int x = 0; x < 8; x++)
            n += plan_expert(s.uniform, l, x);
        ck_assert_int_eq(n, 2);
    }
    suggestion_release(&s);
    profile_sentence(&trained, "--suggest", text, sizeof text);
    ck_assert_ptr_null(strstr(text, "no hot set here"));
    usage_release(&trained);
    usage_release(&held_out);
}
END_TEST

START_TEST(no_hot_set_is_said_so)
{
    struct usage trained, held_out;
    struct suggestion s;
    uint64_t sizes[32];
    char text[300];

    for (int i = 0; i < 32; i++)
        sizes[i] = 100;
    skewed(&trained, 1, 0);
    skewed(&held_out, 2, 0);
    ck_assert_int_eq(suggestion_make(&s, &trained, &held_out, sizes, 800, NULL), 0);
    ck_assert(!s.hot_set);
    ck_assert_ptr_nonnull(strstr(s.verdict, "no hot set here"));
    suggestion_release(&s);
    profile_sentence(&trained, "--suggest", text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "no hot set here"));
    /* a profile whose hot experts are others than the text's: the held-out text unmasks it */
    usage_release(&trained);
    usage_init(&trained, 4, 8, 2, NULL);
    for (int t = 0; t < 100; t++) {
        static const int experts[] = {6, 7, 6, 7, 6, 7, 6, 7};

        usage_add(&trained, 1, t, experts, ones);
    }
    ck_assert_int_eq(suggestion_make(&s, &trained, &held_out, sizes, 800, NULL), 0);
    ck_assert(fabs(s.hit_trained - 1) < 1e-12 && s.hit_held_out < 0.35 && s.likeness < 0.4);
    ck_assert(!s.hot_set);
    suggestion_release(&s);
    ck_assert_int_eq(suggestion_make(&s, &trained, NULL, sizes, 50, NULL), 0);
    ck_assert_ptr_nonnull(strstr(s.verdict, "nothing fits"));
    suggestion_release(&s);
    ck_assert_int_eq(suggestion_make(&s, &trained, NULL, sizes, 100000, NULL), 0);
    ck_assert_ptr_nonnull(strstr(s.verdict, "all experts fit"));
    suggestion_release(&s);
    usage_release(&trained);
    usage_release(&held_out);
}
END_TEST

/* ---- with the demo model ---- */

static struct engine *open_demo(void)
{
    struct engine_config c = {
        .context = 64, .n_threads = 1, .ubatch = 16, .kv_k = KV_F16, .kv_v = KV_F16, .convert = -1};
    char path[4200];
    struct engine *g = NULL;
    struct error e = {0};

    snprintf(path, sizeof path, "%s/configs/models/tiny-storyteller-Q8_0.gguf", support_root());
    c.model_path = path;
    if (engine_open(&g, &c, &e) < 0)
        ck_abort_msg("%s", e.text);
    return g;
}

START_TEST(a_text_is_counted_and_timed)
{
    struct engine *g = open_demo();
    const struct hparams *hp = &engine_info(g)->model->hp;
    struct profile_facts facts;
    struct error e = {0};
    struct usage u;
    int ids[150], timed = 0;

    for (int i = 0; i < 150; i++)
        ids[i] = (i * 131 + 7) % 4000;
    usage_init(&u, hp->n_layers, hp->n_experts, hp->n_experts_used, NULL);
    ck_assert_msg(profile_text(g, ids, 150, &u, NULL, NULL, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(u.tokens, 150);
    ck_assert_uint_eq(u.follow, 63 + 63 + 21); /* three windows of 64 */
    for (int l = 0; l < hp->n_layers; l++) {
        double calls = 0;

        for (int x = 0; x < hp->n_experts; x++)
            calls += u.count[l * hp->n_experts + x];
        ck_assert(calls == 150 * hp->n_experts_used);
    }
    profile_describe(g, "test", PROFILE_PLAIN, &facts);
    ck_assert_msg(profile_times(g, ids, 40, &facts, &e) == 0, "%s", e.text);
    ck_assert(facts.devices[0].expert_ns > 100 && facts.devices[0].expert_ns < 1e8);
    for (int i = 0; i < hp->n_layers * hp->n_experts; i++)
        timed += facts.expert_ns[i] > 0;
    ck_assert_int_gt(timed, hp->n_layers * 2);
    ck_assert_uint_eq(facts.hash, engine_info(g)->model->hash);
    profile_facts_release(&facts);
    usage_release(&u);
    engine_close(g);
}
END_TEST

/* ---- what a file is read as ---- */

static const char chat_json[] = "{\"moetop_chat\": 1, \"messages\": [{\"role\": \"user\", "
                                "\"content\": \"Tell me about <|end|> and the sea.\"},\n"
                                " {\"role\": \"assistant\", \"content\": \"It is wide.\"}]}";
static const char chat_text[] =
    "<|user|>\nTell me about the sea.<|end|>\n<|assistant|>\nIt is wide.<|end|>\n";

static int tokens_named(const int *ids, int n, const struct engine *g, const char *piece)
{
    int id = tokenizer_find(engine_info(g)->tokenizer, piece, strlen(piece)), found = 0;

    ck_assert_int_ge(id, 0);
    for (int i = 0; i < n; i++)
        found += ids[i] == id;
    return found;
}

START_TEST(a_chat_is_read_as_the_chat_reads_it)
{
    static const struct message turns[] = {{.role = ROLE_USER,
                                            .text = (char *)"Tell me about <|end|> and the sea."},
                                           {.role = ROLE_ASSISTANT, .text = (char *)"It is wide."}};
    struct engine *g = open_demo();
    struct profile_text_read chat, marked, plain;
    struct error e = {0};
    int *ids, n;

    ck_assert_msg(profile_tokens(g, chat_json, strlen(chat_json), "c", false, &chat, &e) == 0, "%s",
                  e.text);
    ck_assert_int_eq(chat_template_encode(engine_info(g)->chat, turns, 2, NULL, false, NULL, &ids,
                                          &n, NULL, &e),
                     0);
    ck_assert_int_eq(chat.n, n);
    ck_assert_mem_eq(chat.ids, ids, (size_t)n * sizeof *ids);
    /* the frame's, none of what was typed */
    ck_assert_int_eq(tokens_named(chat.ids, chat.n, g, "<|end|>"), 2);
    ck_assert_ptr_nonnull(strstr(chat.said, "read as a chat of 2 messages"));
    ck_assert_int_eq(profile_tokens(g, chat_text, strlen(chat_text), "t", true, &marked, &e), 0);
    ck_assert_int_eq(profile_tokens(g, chat_text, strlen(chat_text), "t", false, &plain, &e), 0);
    ck_assert_int_eq(tokens_named(marked.ids, marked.n, g, "<|end|>"), 2);
    ck_assert_int_eq(tokens_named(plain.ids, plain.n, g, "<|end|>"), 0);
    /* four markers, in pieces */
    ck_assert_int_gt(plain.n, marked.n + 4 * 3);
    ck_assert_ptr_nonnull(strstr(marked.said, "with special tokens"));
    ck_assert_ptr_nonnull(strstr(plain.said, "as plain text"));
    mem_free(ids);
    mem_free(chat.ids);
    mem_free(marked.ids);
    mem_free(plain.ids);
    engine_close(g);
}
END_TEST

START_TEST(only_a_chat_is_read_as_one)
{
    static const char *const texts[] = {"{\"messages\": 3}", "[1, 2]", "{\"messages\": [",
                                        "{ int x; }", "\"messages\""};
    static const char *const damaged[] = {
        "{\"messages\": []}", "{\"messages\": [{\"role\": \"user\"}]}", "{\"messages\": [4]}"};
    struct engine *g = open_demo();
    struct profile_text_read read;
    struct error e = {0};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ck_assert_msg(profile_tokens(g, texts[i], strlen(texts[i]), "t", false, &read, &e) == 0,
                      "%s", e.text);
        ck_assert_int_eq(read.how, PROFILE_PLAIN);
        mem_free(read.ids);
    }
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        ck_assert_int_eq(profile_tokens(g, damaged[i], strlen(damaged[i]), "chat.json", false,
                                        &read, &e),
                         ERR_INPUT);
        ck_assert_ptr_nonnull(strstr(e.text, "chat.json: "));
    }
    ck_assert_int_eq(profile_tokens(g, "", 0, "t", false, &read, &e), ERR_INPUT);
    engine_close(g);
}
END_TEST

/* Both options of the program, both kinds of file: the tokens counted, and the line that says which
 * way. */
START_TEST(the_program_says_which_way)
{
    static const struct {
        const char *args, *said;
        int tokens;
    } cases[] = {
        {"--profile-experts '%s/chat.json'",
         "chat.json: read as a chat of 2 messages, with its chat markers: 22 tokens", 22},
        {"--profile-experts '%s/chat.txt'", "chat.txt: read as plain text: 39 tokens", 39},
        {"--profile-experts '%s/chat.txt' --parse-special",
         "chat.txt: read as text with special tokens in it: 14 tokens", 14},
        {"--suggest '%s/profile.json' --budget 8M --validate '%s/chat.json'",
         "chat.json: read as a chat", 0},
        {"--suggest '%s/profile.json' --budget 8M --validate '%s/chat.txt'",
         "chat.txt: read as plain text", 0},
        {"--suggest '%s/profile.json' --budget 8M --validate '%s/chat.txt' --parse-special",
         "chat.txt: read as text with special tokens", 0},
    };
    const char *build = getenv("CHECK_BUILD"), *dir = support_tmpdir();
    char args[700], command[6000], out[8000];

    file("chat.json", chat_json, strlen(chat_json));
    file("chat.txt", chat_text, strlen(chat_text));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct profile_facts facts;
        struct usage u;
        FILE *p;
        size_t n;

        snprintf(args, sizeof args, cases[i].args, dir, dir);
        snprintf(command, sizeof command, "'%s/%s/moetop' %s --output '%s/%s' 2>&1",
                 build && build[0] == '/' ? "" : support_root(), build ? build : "build/release",
                 args, dir, cases[i].tokens ? "profile.json" : "plan");
        p = popen(command, "r");
        ck_assert_ptr_nonnull(p);
        n = fread(out, 1, sizeof out - 1, p);
        out[n] = 0;
        ck_assert_msg(pclose(p) == 0 && strstr(out, cases[i].said), "%s: %s", args, out);
        if (!cases[i].tokens)
            continue;
        snprintf(command, sizeof command, "%s/profile.json", dir);
        ck_assert_int_eq(profile_read(&u, &facts, command, NULL), 0);
        ck_assert_uint_eq(u.tokens, (unsigned)cases[i].tokens);
        ck_assert_str_eq(facts.read_as, i == 0   ? "chat"
                                        : i == 1 ? "text"
                                                 : "text with special tokens");
        usage_release(&u);
        profile_facts_release(&facts);
    }
}
END_TEST

START_TEST(no_memory)
{
    struct usage u;

    for (long n = 0; n < 7; n++) {
        mem_fail_after(n);
        ck_assert_int_eq(usage_init(&u, 2, 4, 2, NULL), ERR_MEMORY);
        mem_fail_after(-1);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("profile");
    TCase *t = tcase_create("profile");

    tcase_add_test(t, figures_by_hand);
    tcase_add_test(t, layers_may_differ);
    tcase_add_test(t, chunks_count_like_one_pass);
    tcase_add_test(t, likeness);
    tcase_add_test(t, profiles_read_back);
    tcase_add_test(t, damaged_profiles_are_refused);
    tcase_add_test(t, imatrix_counts_are_read);
    tcase_add_test(t, a_hot_set_is_found_where_there_is_one);
    tcase_add_test(t, no_hot_set_is_said_so);
    tcase_add_test(t, a_text_is_counted_and_timed);
    tcase_add_test(t, a_chat_is_read_as_the_chat_reads_it);
    tcase_add_test(t, only_a_chat_is_read_as_one);
    tcase_add_test(t, the_program_says_which_way);
    tcase_add_test(t, no_memory);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
