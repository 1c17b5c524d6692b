/* The prompt cache on the disk: what was computed before a restart, or a kill, is read and not
 * computed again, and says the same; what belongs to other weights or settings, or is damaged, is
 * not used. */
#include "engine/base/mem.h"
#include "engine/run/engine.h"
#include "engine/run/state/segment.h"
#include "tests/support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROMPT 700
#define ANSWER 24
#define GIB ((uint64_t)1 << 30)

static const char *const window_of[] = {"*.attention.sliding_window=int:12"};
static const char *const theta_of[] = {"*.rope.freq_base=float:9000"};
static const struct overrides with_window = {window_of, 1}, with_theta = {theta_of, 1};

/* What a case is opened with. */
struct setting {
    const char *model; /* NULL: the demo */
    const struct overrides *overrides;
    enum kv_type kv;
    uint64_t most; /* 0: a GiB */
};

static struct engine_config config_of(const struct setting *s, const char *folder)
{
    return (struct engine_config){.model_path = s->model ? s->model : support_demo(),
                                  .overrides = s->overrides,
                                  .context = 1024,
                                  .ubatch = 64,
                                  .n_threads = 2,
                                  .kv_k = s->kv,
                                  .kv_v = s->kv,
                                  .cache_dir = support_tmpdir(),
                                  .tune = DEVICE_TUNE_OFF,
                                  .prompt_cache = folder,
                                  .prompt_cache_bytes = s->most ? s->most : GIB,
                                  .chat_optional = true,
                                  .convert = -1};
}

static struct engine *open_engine(const struct setting *s, const char *folder)
{
    struct engine_config c = config_of(s, folder);
    struct engine *g = NULL;
    struct error e = {0};

    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    return g;
}

struct heard {
    int ids[ANSWER], n;
    float logprobs[ANSWER];
};

static int hear(void *ctx, struct event *ev)
{
    struct heard *h = ctx;

    if (ev->kind == EVENT_LOGPROBS && h->n < ANSWER)
        h->logprobs[h->n] = ev->logprobs.logprob;
    if (ev->kind == EVENT_TOKEN && ev->token.id >= 0 && h->n < ANSWER)
        h->ids[h->n++] = ev->token.id;
    return 0;
}

static struct turn_done_event ask(struct engine *g, int *ids, int n, struct heard *h)
{
    struct turn t = {.prompt = {.ids = ids, .n = n, .marks = {n / 2, n - 5}, .n_marks = 2},
                     .max_tokens = ANSWER,
                     .ignore_eos = true,
                     .logprobs = true,
                     .sampling = {.temperature = 0.8f, .repeat_penalty = 1.0f, .seed = 7}};
    struct turn_done_event done;
    struct error e = {0};

    *h = (struct heard){0};
    ck_assert_msg(engine_turn(g, &t, hear, h, &done, &e) == 0, "%s", e.text);
    ck_assert_int_eq(h->n, ANSWER);
    return done;
}

static void fill(int *ids, int n, int seed)
{
    for (int i = 0; i < n; i++)
        ids[i] = 5 + (i * 37 + seed * 101) % 200;
}

/* What is said by who has no cache. */
static void say_alone(const struct setting *s, int *ids, int n, struct heard *h)
{
    struct engine *g = open_engine(s, NULL);

    ask(g, ids, n, h);
    engine_close(g);
}

static void same(const struct heard *a, const struct heard *b)
{
    ck_assert_mem_eq(a->ids, b->ids, sizeof a->ids);
    ck_assert_mem_eq(a->logprobs, b->logprobs, sizeof a->logprobs);
}

/* Asked of a new engine with that folder: tokens that come from the disk; the text is `want`. */
static int stored_of(const struct setting *s, const char *folder, int *ids, int n,
                     const struct heard *want)
{
    struct engine *g = open_engine(s, folder);
    struct heard h;
    struct turn_done_event done = ask(g, ids, n, &h);

    engine_close(g);
    same(&h, want);
    ck_assert_int_le(done.stored_tokens, done.cached_tokens);
    return done.stored_tokens;
}

static const char *fresh_folder(void)
{
    static char name[4][200];
    static int at;
    char *out = name[at++ % 4];

    snprintf(out, sizeof name[0], "%s/prompts%d", support_tmpdir(), at);
    return out;
}

/* Pieces of the folder; calls fn of each. */
static int each_piece(const char *folder, void (*fn)(const char *path, void *ctx), void *ctx)
{
    DIR *d = opendir(folder);
    struct dirent *entry;
    char path[600];
    int n = 0;

    ck_assert_ptr_nonnull(d);
    while ((entry = readdir(d))) {
        if (!strstr(entry->d_name, SEGMENT_SUFFIX) || entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        n++;
        if (fn)
            fn(path, ctx);
    }
    closedir(d);
    return n;
}

static void check_private(const char *path, void *ctx)
{
    struct stat st;

    (void)ctx;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
}

static const char *const shared_models[] = {NULL, NULL, "lfm2moe", "qwen3next", "gpt-oss"};

/* The demo, the demo with rings, and models with state that cannot be cut. false: not here. */
static bool setting_of(int i, struct setting *s)
{
    char below[100];

    *s = (struct setting){.kv = KV_F16, .overrides = i == 1 ? &with_window : NULL};
    if (!shared_models[i])
        return true;
    snprintf(below, sizeof below, "ggufs/%s.gguf", shared_models[i]);
    return (s->model = support_shared(below)) != NULL;
}

START_TEST(a_restart_reads_and_says_the_same)
{
    struct setting s;
    const char *folder = fresh_folder();
    struct heard want, other, h;
    int ids[PROMPT + 100], first;
    struct engine *g;

    if (!setting_of(_i, &s))
        return;
    fill(ids, PROMPT, 1);
    say_alone(&s, ids, PROMPT, &want);
    g = open_engine(&s, folder);
    ck_assert_int_eq(ask(g, ids, PROMPT, &h).stored_tokens, 0);
    same(&h, &want);
    engine_close(g);
    ck_assert_int_gt(each_piece(folder, check_private, NULL), 2);
    first = stored_of(&s, folder, ids, PROMPT, &want);
    /* all but what stands behind the last mark */
    ck_assert_int_ge(first, PROMPT - 5);
    /* a conversation that goes on behind the answer, and another one that parts in the middle */
    memcpy(ids + PROMPT, want.ids, sizeof want.ids);
    fill(ids + PROMPT + ANSWER, 20, 3);
    say_alone(&s, ids, PROMPT + ANSWER + 20, &other);
    ck_assert_int_ge(stored_of(&s, folder, ids, PROMPT + ANSWER + 20, &other), PROMPT - 5);
    fill(ids + PROMPT / 2 + 8, 100, 5);
    say_alone(&s, ids, PROMPT / 2 + 108, &other);
    ck_assert_int_ge(stored_of(&s, folder, ids, PROMPT / 2 + 108, &other), PROMPT / 2);
}
END_TEST

/* Two sessions, of which one reads from the disk while the other answers. */
START_TEST(beside_an_answer)
{
    const struct setting s = {.kv = KV_F16};
    const char *folder = fresh_folder();
    struct heard want[2], h[2];
    int ids[2][PROMPT];
    struct error e;
    struct engine *g;
    struct session *more;
    struct turn t[2];

    for (int i = 0; i < 2; i++) {
        fill(ids[i], PROMPT, 20 + i);
        say_alone(&s, ids[i], PROMPT, &want[i]);
        t[i] = (struct turn){.prompt = {.ids = ids[i], .n = PROMPT},
                             .max_tokens = ANSWER,
                             .ignore_eos = true,
                             .logprobs = true,
                             .sampling = {.temperature = 0.8f, .repeat_penalty = 1.0f, .seed = 7}};
        h[i] = (struct heard){0};
    }
    g = open_engine(&s, folder);
    ask(g, ids[1], PROMPT, &h[1]);
    engine_close(g);
    h[1] = (struct heard){0};
    g = open_engine(&s, folder);
    ck_assert_int_eq(engine_session_open(g, &more, &e), 0);
    ck_assert_int_eq(engine_session_turn(engine_session(g), &t[0], hear, &h[0], &e), 0);
    for (int i = 0; i < 14; i++)
        engine_step(g);
    ck_assert_int_eq(engine_session_turn(more, &t[1], hear, &h[1], &e), 0);
    while (engine_step(g))
        ;
    ck_assert_int_ge((int)engine_telemetry(g)->stored.read, 3);
    engine_close(g);
    same(&h[0], &want[0]);
    same(&h[1], &want[1]);
}
END_TEST

START_TEST(of_others_nothing_is_used)
{
    const struct setting own = {.kv = KV_F16}, cache = {.kv = KV_Q8_0},
                         rope = {.kv = KV_F16, .overrides = &with_theta};
    struct setting weights = own;
    const char *folder = fresh_folder();
    char copy[300], command[900];
    struct heard want, h;
    int ids[PROMPT], fd;
    struct engine *g = open_engine(&own, folder);
    struct stat st;
    unsigned char byte;

    fill(ids, PROMPT, 2);
    ask(g, ids, PROMPT, &want);
    engine_close(g);
    say_alone(&cache, ids, PROMPT, &h);
    ck_assert_int_eq(stored_of(&cache, folder, ids, PROMPT, &h), 0);
    say_alone(&rope, ids, PROMPT, &h);
    ck_assert_int_eq(stored_of(&rope, folder, ids, PROMPT, &h), 0);
    /* the same model but for one byte, where the short hash does not look */
    snprintf(copy, sizeof copy, "%s/other.gguf", support_tmpdir());
    snprintf(command, sizeof command, "cp '%s' '%s' && chmod u+w '%s'", support_demo(), copy, copy);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_ge(fd = open(copy, O_RDWR), 0);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(pread(fd, &byte, 1, st.st_size * 2 / 3), 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(fd, &byte, 1, st.st_size * 2 / 3), 1);
    close(fd);
    weights.model = copy;
    say_alone(&weights, ids, PROMPT, &h);
    ck_assert_int_eq(stored_of(&weights, folder, ids, PROMPT, &h), 0);
    ck_assert_int_ge(stored_of(&own, folder, ids, PROMPT, &want), PROMPT - 32);
    unlink(copy);
}
END_TEST

/* Turns one bit of a byte somewhere. */
static void damage(const char *path, void *ctx)
{
    unsigned *at = ctx;
    struct stat st;
    unsigned char byte;
    int fd = open(path, O_RDWR);
    off_t place;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fstat(fd, &st), 0);
    place = (off_t)(*at % (unsigned)st.st_size);
    *at = *at * 1664525u + 1013904223u;
    ck_assert_int_eq(pread(fd, &byte, 1, place), 1);
    byte ^= (unsigned char)(1u << (*at >> 29));
    ck_assert_int_eq(pwrite(fd, &byte, 1, place), 1);
    close(fd);
}

static void cut_short(const char *path, void *ctx)
{
    struct stat st;

    (void)ctx;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(truncate(path, st.st_size / 2), 0);
}

START_TEST(damage_is_refused)
{
    const struct setting s = {.kv = KV_F16};
    const char *folder = fresh_folder();
    struct heard want, h;
    int ids[PROMPT];
    unsigned at = 4711;

    fill(ids, PROMPT, 3);
    say_alone(&s, ids, PROMPT, &want);
    for (int i = 0; i < 4; i++) {
        struct engine *g = open_engine(&s, folder);

        ask(g, ids, PROMPT, &h);
        same(&h, &want);
        engine_close(g);
        ck_assert_int_ge(each_piece(folder, i == 3 ? cut_short : damage, &at), 3);
        ck_assert_int_eq(stored_of(&s, folder, ids, PROMPT, &want), 0);
    }
}
END_TEST

static void add_bytes(const char *path, void *ctx)
{
    struct stat st;

    ck_assert_int_eq(stat(path, &st), 0);
    *(uint64_t *)ctx += (uint64_t)st.st_size;
}

START_TEST(the_folder_keeps_its_bound)
{
    struct setting s = {.kv = KV_F16};
    const char *folder = fresh_folder();
    struct engine *g = open_engine(&s, folder);
    struct heard h;
    int ids[PROMPT];
    uint64_t bytes = 0, one;

    fill(ids, PROMPT, 0);
    ask(g, ids, PROMPT, &h);
    engine_close(g);
    each_piece(folder, add_bytes, &bytes);
    one = bytes;
    s.most = one * 5 / 2; /* two of them */
    for (int i = 1; i < 5; i++) {
        g = open_engine(&s, folder);
        fill(ids, PROMPT, i);
        ask(g, ids, PROMPT, &h);
        engine_close(g);
        bytes = 0;
        each_piece(folder, add_bytes, &bytes);
        ck_assert_uint_le(bytes, s.most);
    }
    ck_assert_uint_ge(bytes, one);
    ck_assert_int_ge(stored_of(&s, folder, ids, PROMPT, &h), PROMPT - 32); /* the newest */
    s.most = 1000;                                                         /* not even a piece */
    g = open_engine(&s, folder);
    fill(ids, PROMPT, 9);
    ask(g, ids, PROMPT, &h);
    engine_close(g);
    ck_assert_int_eq(each_piece(folder, NULL, NULL), 0);
}
END_TEST

/* Texts of embeddings are no beginnings of chats. */
START_TEST(embeddings_are_not_stored)
{
    struct setting s = {0};
    const char *folder = fresh_folder();
    struct engine *g = open_engine(&s, folder);
    struct turn t = {.embed = EMBED_MEAN, .prompt.n = PROMPT};
    struct error e = {0};
    int ids[PROMPT];

    fill(ids, PROMPT, 1);
    t.prompt.ids = ids;
    ck_assert_msg(engine_turn(g, &t, NULL, NULL, NULL, &e) == 0, "%s", e.text);
    engine_close(g);
    ck_assert_int_eq(each_piece(folder, NULL, NULL), 0);
}
END_TEST

/* A program that writes until it is killed. */
static void write_on(const struct setting *s, const char *folder)
{
    struct engine *g = open_engine(s, folder);
    struct heard h;
    int ids[PROMPT];

    for (int i = 0;; i++) {
        fill(ids, PROMPT, i % 3);
        ask(g, ids, PROMPT, &h);
    }
}

START_TEST(killed_at_any_time)
{
    const struct setting s = {.kv = KV_F16};
    const char *folder = fresh_folder();
    struct heard want[3];
    int ids[PROMPT], sum = 0;

    for (int i = 0; i < 3; i++) {
        fill(ids, PROMPT, i);
        say_alone(&s, ids, PROMPT, &want[i]);
    }
    for (int k = 0; k < 8; k++) {
        pid_t pid = fork();
        struct timespec t = {0, 120000000L + 37000000L * k};

        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            write_on(&s, folder);
            _exit(0);
        }
        nanosleep(&t, NULL);
        kill(pid, SIGKILL);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
        fill(ids, PROMPT, k % 3);
        sum += stored_of(&s, folder, ids, PROMPT, &want[k % 3]);
    }
    ck_assert_int_gt(sum, 0);
}
END_TEST

START_TEST(the_folder_is_ours_alone)
{
    const struct setting s = {.kv = KV_F16};
    const char *folder = fresh_folder();
    struct engine_config c = config_of(&s, folder);
    struct engine *g = NULL;
    struct error e = {0};
    struct stat st;

    engine_close(open_engine(&s, folder));
    ck_assert_int_eq(stat(folder, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0700);
    ck_assert_int_eq(chmod(folder, 0777), 0);
    ck_assert_int_eq(engine_open(&g, &c, &e), ERR_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "private"));
    c.prompt_cache = "/proc/nothing/here";
    ck_assert_int_eq(engine_open(&g, &c, &e), ERR_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "/proc/nothing/here"));
}
END_TEST

/* A file in memory, of which every byte and every length counts. */
START_TEST(every_byte_of_a_piece)
{
    const struct segment_shape shape = {
        .row_bytes = 24, .routes_bytes = 6, .copy_bytes = 40, .n_vocab = 100};
    int ids[] = {1, 2, 99};
    struct segment_place place = {.first = 256, .n = 3, .copy = true, .ids = ids};
    size_t bytes = segment_bytes(&shape, 3, true);
    uint8_t *data = mem_alloc(bytes + 1, 1);
    struct segment s;
    struct error e;
    char name[DIGEST_HEX], other[DIGEST_HEX];

    memset(place.key, 'a', DIGEST_HEX - 1);
    memset(place.parent, 'b', DIGEST_HEX - 1);
    segment_begin(data, &shape, &place, &s);
    memset(s.rows, 3, 3 * 24);
    memset(s.copy, 4, 40);
    ck_assert_int_eq(segment_seal(data, bytes, &e), 0);
    segment_name(&place, name);
    ck_assert_int_eq(segment_open(data, bytes, &shape, place.key, name, &s, &e), 0);
    ck_assert_int_eq(s.place.first, 256);
    ck_assert_int_eq(s.place.ids[2], 99);
    ck_assert_str_eq(s.place.parent, place.parent);
    ck_assert_int_eq(s.copy[39], 4);
    for (size_t i = 0; i < bytes; i++) {
        data[i] ^= 0x10;
        ck_assert_int_eq(segment_open(data, bytes, &shape, place.key, name, &s, &e), ERR_INPUT);
        data[i] ^= 0x10;
        ck_assert_int_eq(segment_open(data, i, &shape, place.key, name, &s, &e), ERR_INPUT);
    }
    ck_assert_int_eq(segment_open(data, bytes + 1, &shape, place.key, name, &s, &e), ERR_INPUT);
    ck_assert_int_eq(segment_open(data, bytes, &shape, place.parent, name, &s, &e), ERR_INPUT);
    place.strengths = 1; /* of adapters: another piece */
    segment_name(&place, other);
    ck_assert_str_ne(name, other);
    ck_assert_int_eq(segment_open(data, bytes, &shape, place.key, other, &s, &e), ERR_INPUT);
    mem_free(data);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("prompt cache");
    TCase *t = tcase_create("disk");

    tcase_set_timeout(t, 240);
    tcase_add_loop_test(t, a_restart_reads_and_says_the_same, 0, 5);
    tcase_add_test(t, beside_an_answer);
    tcase_add_test(t, of_others_nothing_is_used);
    tcase_add_test(t, damage_is_refused);
    tcase_add_test(t, the_folder_keeps_its_bound);
    tcase_add_test(t, embeddings_are_not_stored);
    tcase_add_test(t, killed_at_any_time);
    tcase_add_test(t, the_folder_is_ours_alone);
    tcase_add_test(t, every_byte_of_a_piece);
    suite_add_tcase(s, t);
    return support_run(s);
}
