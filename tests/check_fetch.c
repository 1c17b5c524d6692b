/* -hf: the real program fetches from a Hub that runs in this process and misbehaves as told. Every
 * test has an empty cache of its own. */
#include "app/fetch/hub_files.h"
#include "tests/serving.h"
#include "tests/support.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
/* sha256sum of "abc" and of nothing; git hash-object of "hello\n" */
#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define HELLO "ce013625030ba8dba906f756967f9e9ca394464a"

/* What the Hub does; each test sets it, the server's thread reads it. */
static struct {
    const char *token; /* asked for, NULL: none */
    size_t cut;        /* bytes after which an answer of the weights ends, 0: none */
    int cuts;          /* how many answers are cut so */
    int busy;          /* how many requests are refused with 503 first */
    bool no_ranges, damaged, huge, gone, wild;
    bool beyond;      /* sizes whose sum is more than 64 bits */
    bool unsaid_once; /* after that it gives none any more */
    bool unsaid;      /* it gives a range and does not say which */
    bool shifted;     /* what comes after a range begins earlier than it says */
    bool elsewhere;   /* the weights lie on another server */
    bool slow;
    unsigned status; /* of the listing, 0: 200 */
} hub;
static int asked, resumed; /* requests for the weights; those with a range */
static int keyed;          /* those on the other server that brought the token */
static struct MHD_Daemon *daemon_;
static int port;
static char *weights, sum[65], home[PATH_MAX], said[1 << 16], answer[1 << 16];
static size_t n_weights;

/* ---- the Hub ---- */

static enum MHD_Result reply(struct MHD_Connection *c, unsigned status, const char *text, size_t n)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(n, (void *)text,
                                                             MHD_RESPMEM_MUST_COPY);
    enum MHD_Result rc = MHD_queue_response(c, status, r);

    MHD_destroy_response(r);
    return rc;
}

static void add(json_t *list, const char *path, json_int_t bytes, const char *sha256,
                const char *blob)
{
    json_t *f = json_pack("{s:s, s:I, s:s}", "rfilename", path, "size", bytes, "blobId", blob);

    if (sha256)
        json_object_set_new(f, "lfs", json_pack("{s:s, s:I}", "sha256", sha256, "size", bytes));
    json_array_append_new(list, f);
}

static enum MHD_Result list_files(struct MHD_Connection *c)
{
    json_t *list = json_array(), *all;
    char *text;
    enum MHD_Result rc;

    add(list, "README.md", 6, NULL, HELLO);
    if (hub.wild) {
        add(list, "../../../../escaped-Q8_0.gguf", 3, ABC, HELLO);
        add(list, "/tmp/escaped-Q8_0.gguf", 3, ABC, HELLO);
    } else if (hub.beyond) {
        add(list, "config.json", (json_int_t)1 << 62, ABC, HELLO);
        add(list, "tokenizer.json", (json_int_t)1 << 62, ABC, HELLO);
        add(list, "vocab.json", (json_int_t)1 << 62, ABC, HELLO);
        add(list, "model.safetensors", (json_int_t)1 << 62, ABC, HELLO);
    } else {
        add(list, "tiny-Q8_0.gguf", hub.huge ? (json_int_t)1 << 60 : (json_int_t)n_weights, sum,
            HELLO);
        add(list, "Q4_K/big-Q4_K-00002-of-00002.gguf", 3, ABC, HELLO);
        add(list, "Q4_K/big-Q4_K-00001-of-00002.gguf", 3, ABC, HELLO);
        add(list, "half-IQ4_XS-00001-of-00003.gguf", 3, ABC, HELLO);
        add(list, "mmproj-Q5_0.gguf", 3, ABC, HELLO);
    }
    all = json_pack("{s:s, s:o}", "sha", COMMIT, "siblings", list);
    text = json_dumps(all, 0);
    rc = reply(c, 200, text, strlen(text));
    free(text);
    json_decref(all);
    return rc;
}

struct sending {
    size_t from, cut;
};

static ssize_t send_some(void *ctx, uint64_t at, char *to, size_t most)
{
    struct sending *s = ctx;
    size_t pos = s->from + (size_t)at, n = n_weights - pos;

    if (hub.slow)
        usleep(5000);

    if (s->cut && at >= s->cut)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (s->cut && n > s->cut - at)
        n = s->cut - (size_t)at;
    n = n < most ? n : most;
    memcpy(to, weights + pos, n);
    if (hub.damaged)
        to[0] ^= 1;
    return (ssize_t)n;
}

static enum MHD_Result send_weights(struct MHD_Connection *c)
{
    const char *range = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Range");
    struct sending *s = calloc(1, sizeof *s);
    size_t shift = 0;
    struct MHD_Response *r;
    enum MHD_Result rc;
    char text[80];

    asked++;
    if (range && !hub.no_ranges) {
        resumed++;
        s->from = strtoull(range + strlen("bytes="), NULL, 10);
        shift = hub.shifted ? 100 : 0;
    }
    if (hub.cuts) {
        hub.cuts--;
        s->cut = hub.cut;
    }
    r = MHD_create_response_from_callback(n_weights - s->from + shift, 1 << 16, send_some, s, free);
    if (s->from && hub.unsaid) {
        s->from -= shift;
    } else if (s->from) {
        snprintf(text, sizeof text, "bytes %zu-%zu/%zu", s->from, n_weights - 1, n_weights);
        MHD_add_response_header(r, "Content-Range", text);
        s->from -= shift;
    }
    rc = MHD_queue_response(c, s->from ? 206 : 200, r);
    MHD_destroy_response(r);
    if (s->from && hub.unsaid_once)
        hub.no_ranges = true;
    return rc;
}

/* To the same server under another name, which is another one to a client. */
static enum MHD_Result send_on(struct MHD_Connection *c)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    enum MHD_Result rc;
    char text[80];

    snprintf(text, sizeof text, "http://localhost:%d/cdn/weights", port);
    MHD_add_response_header(r, "Location", text);
    rc = MHD_queue_response(c, 302, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result serve(void *ctx, struct MHD_Connection *c, const char *url,
                             const char *method, const char *version, const char *data, size_t *n,
                             void **state)
{
    static int begun;
    const char *bearer = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    char wanted[80];

    if (!*state) {
        *state = &begun;
        return MHD_YES;
    }
    if (strcmp(url, "/cdn/weights") == 0) {
        keyed += bearer != NULL;
        return send_weights(c);
    }
    snprintf(wanted, sizeof wanted, "Bearer %s", hub.token ? hub.token : "");
    if (hub.busy) {
        hub.busy--;
        return reply(c, 503, "busy", 4);
    }
    if (hub.token && (!bearer || strcmp(bearer, wanted)))
        return reply(c, 401, "who?", 4);
    if (hub.status)
        return reply(c, hub.status, "no", 2);
    if (strcmp(url, "/api/models/a/tiny/revision/main") == 0)
        return list_files(c);
    if (strstr(url, "/tiny-Q8_0.gguf") && hub.elsewhere)
        return send_on(c);
    if (strcmp(url, "/a/tiny/resolve/" COMMIT "/tiny-Q8_0.gguf") == 0 && !hub.gone)
        return send_weights(c);
    if (strstr(url, "/resolve/" COMMIT "/Q4_K/big"))
        return reply(c, 200, "abc", 3);
    return reply(c, 404, "none", 4);
}

static void listen_anywhere(void)
{
    daemon_ = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, serve, NULL,
                               MHD_OPTION_END);
    ck_assert_ptr_nonnull(daemon_);
    port = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT)->port;
}

static void set_up(void)
{
    char command[PATH_MAX + 40];
    struct stat st;
    FILE *f;

    snprintf(home, sizeof home, "%s/hf", support_tmpdir());
    ck_assert_int_eq(stat(support_demo(), &st), 0);
    n_weights = (size_t)st.st_size;
    weights = malloc(n_weights);
    f = fopen(support_demo(), "r");
    ck_assert(f && fread(weights, 1, n_weights, f) == n_weights);
    fclose(f);
    snprintf(command, sizeof command, "sha256sum '%s'", support_demo());
    f = popen(command, "r");
    ck_assert(f && fread(sum, 1, 64, f) == 64);
    pclose(f);
    listen_anywhere();
}

static void tear_down(void)
{
    if (daemon_)
        MHD_stop_daemon(daemon_);
    free(weights);
}

/* ---- the program ---- */

static void slurp(const char *name, char *to, size_t size)
{
    char path[PATH_MAX + 8];
    FILE *f;
    size_t n;

    snprintf(path, sizeof path, "%s/%s", support_tmpdir(), name);
    f = fopen(path, "r");
    n = f ? fread(to, 1, size - 1, f) : 0;
    to[n] = 0;
    if (f)
        fclose(f);
}

/* Its exit status; stdout in answer, stderr in said. */
static int moetop(const char *before, const char *arguments)
{
    static char command[8 * PATH_MAX], exe[PATH_MAX];
    const char *tmp = support_tmpdir();
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    int status;

    ck_assert_int_gt(n, 0);
    exe[n] = 0;
    *strrchr(exe, '/') = 0;
    *strrchr(exe, '/') = 0;
    snprintf(command, sizeof command,
             "unset HF_TOKEN HF_HUB_CACHE; XDG_CACHE_HOME=%s XDG_CONFIG_HOME=%s HF_HOME=%s "
             "HF_ENDPOINT=http://127.0.0.1:%d NO_PROXY=127.0.0.1 %s %s/moetop %s "
             "</dev/null >%s/out 2>%s/err",
             tmp, tmp, home, port, before, exe, arguments, tmp, tmp);
    status = system(command);
    slurp("out", answer, sizeof answer);
    slurp("err", said, sizeof said);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define FETCH "-hf a/tiny --print-prompt -p hi"

static bool in_cache(const char *below)
{
    char path[PATH_MAX + 200];

    snprintf(path, sizeof path, "%s/hub/models--a--tiny/%s", home, below);
    return access(path, F_OK) == 0;
}

static void is_whole(void)
{
    char link[PATH_MAX + 200], to[200];
    ssize_t n;

    snprintf(link, sizeof link, "%s/hub/models--a--tiny/snapshots/" COMMIT "/tiny-Q8_0.gguf", home);
    n = readlink(link, to, sizeof to - 1);
    ck_assert_int_gt(n, 0);
    to[n] = 0;
    ck_assert(strncmp(to, "../../blobs/", 12) == 0 && strcmp(to + 12, sum) == 0);
    ck_assert(in_cache("snapshots/" COMMIT "/tiny-Q8_0.gguf") && in_cache("refs/main"));
}

#define SAYS(text) ck_assert_msg(strstr(said, text) != NULL, "it says: %s", said)

START_TEST(a_model_is_fetched_once_and_answers_as_the_file_does)
{
    static char first[sizeof answer];
    char local[PATH_MAX + 60];

    ck_assert_msg(moetop("", "-hf a/tiny:q8_0 -p Hello -n 12 --temp 0") == 0, "%s", said);
    strcpy(first, answer);
    SAYS("fetching a/tiny, 1 file, ");
    is_whole();
    snprintf(local, sizeof local, "-m %s -p Hello -n 12 --temp 0", support_demo());
    ck_assert_int_eq(moetop("", local), 0);
    ck_assert_str_eq(first, answer);
    ck_assert_int_eq(moetop("", FETCH), 0);
    ck_assert_int_eq(asked, 1);
    ck_assert_ptr_null(strstr(said, "fetching"));
}
END_TEST

START_TEST(a_cut_connection_goes_on_where_it_was)
{
    hub.cut = n_weights / 3;
    hub.cuts = 2;
    ck_assert_msg(moetop("", FETCH) == 0, "%s", said);
    ck_assert_int_eq(asked, 3);
    ck_assert_int_eq(resumed, 2);
    is_whole();
}
END_TEST

START_TEST(the_next_run_goes_on_too)
{
    char cache[PATH_MAX + 60], part[PATH_MAX + 160];
    FILE *f;

    snprintf(cache, sizeof cache, "mkdir -p %s/hub/models--a--tiny/blobs", home);
    ck_assert_int_eq(system(cache), 0);
    snprintf(part, sizeof part, "%s/hub/models--a--tiny/blobs/%s.incomplete", home, sum);
    f = fopen(part, "w");
    ck_assert(f && fwrite(weights, 1, 1000000, f) == 1000000);
    fclose(f);
    ck_assert_msg(moetop("", FETCH) == 0, "%s", said);
    ck_assert_int_eq(asked, 1);
    ck_assert_int_eq(resumed, 1);
    is_whole();
    ck_assert_int_ne(access(part, F_OK), 0);
}
END_TEST

START_TEST(a_server_without_ranges_begins_again)
{
    hub.no_ranges = true;
    hub.cut = n_weights / 2;
    hub.cuts = 1;
    ck_assert_msg(moetop("", FETCH) == 0, "%s", said);
    ck_assert_int_eq(resumed, 0);
    is_whole();
}
END_TEST

/* A part that the server does not name is the one that was asked for; where it then sends all, all
 * is taken. */
START_TEST(a_part_without_its_place_goes_on)
{
    hub.unsaid = true;
    hub.unsaid_once = _i;
    hub.cut = n_weights / 3;
    hub.cuts = 1;
    ck_assert_msg(moetop("", FETCH) == 0, "%s", said);
    ck_assert_int_eq(resumed, _i ? 1 : 2);
    ck_assert_int_eq(asked, 3);
    is_whole();
}
END_TEST

START_TEST(one_that_gives_nothing_more_is_given_up)
{
    hub.cut = 1; /* a byte a time is progress; the same byte again and again is not */
    hub.cuts = 100;
    hub.no_ranges = true;
    ck_assert_int_eq(moetop("", FETCH), 5);
    SAYS("the connection was cut at ");
    SAYS("the same command goes on with it");
    ck_assert_int_lt(asked, 14);
}
END_TEST

START_TEST(what_is_damaged_is_not_kept)
{
    hub.damaged = true;
    ck_assert_int_eq(moetop("", FETCH), 5);
    SAYS("tiny-Q8_0.gguf: damaged on the way: its hash is ");
    ck_assert(!in_cache("snapshots/" COMMIT "/tiny-Q8_0.gguf"));
    hub.damaged = false;
    ck_assert_msg(moetop("", FETCH) == 0, "%s", said);
    is_whole();
}
END_TEST

START_TEST(a_token_is_sent_and_asked_for)
{
    hub.token = "hf_secret";
    ck_assert_int_eq(moetop("", FETCH), 3);
    SAYS("a/tiny: not there, or not for everybody (HTTP 401)");
    SAYS("put your token into HF_TOKEN");
    ck_assert_int_eq(moetop("HF_TOKEN=hf_wrong", FETCH), 3);
    SAYS("the token in HF_TOKEN is not accepted");
    ck_assert_ptr_null(strstr(said, "hf_wrong"));
    ck_assert_msg(moetop("HF_TOKEN=hf_secret", FETCH) == 0, "%s", said);
    is_whole();
}
END_TEST

START_TEST(a_token_does_not_go_along_to_another_server)
{
    hub.token = "hf_secret";
    hub.elsewhere = true;
    ck_assert_msg(moetop("NO_PROXY=localhost,127.0.0.1 HF_TOKEN=hf_secret", FETCH) == 0, "%s",
                  said);
    is_whole();
    ck_assert_int_eq(asked, 1);
    ck_assert_int_eq(keyed, 0);
}
END_TEST

START_TEST(two_that_want_the_same_fetch_it_once)
{
    char path[PATH_MAX + 200];

    hub.slow = true;
    ck_assert_msg(moetop("sh -c '\"$@\" & a=$!; \"$@\" && wait $a' sh", FETCH) == 0, "%s", said);
    SAYS("tiny-Q8_0.gguf: another program is fetching it: waiting for that one");
    ck_assert_int_eq(asked, 1);
    is_whole();
    /* where huggingface_hub looks for it too */
    snprintf(path, sizeof path, "%s/hub/.locks/models--a--tiny/%s.lock", home, sum);
    ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

START_TEST(what_cannot_be_right_is_not_kept)
{
    hub.cut = n_weights / 3;
    hub.cuts = 1;
    hub.shifted = true;
    ck_assert_int_eq(moetop("", FETCH), 5);
    SAYS("bytes it should have; it was removed: fetch it again");
    hub.shifted = false;
    ck_assert_msg(moetop("", FETCH) == 0, "%s", said);
    is_whole();
    hub.beyond = true;
    ck_assert_int_eq(moetop("", "-hf a/tiny -p hi"), 5);
    SAYS("are to come and the disk has room for ");
    ck_assert(!in_cache("snapshots/" COMMIT "/config.json"));
}
END_TEST

START_TEST(refusals_are_said_and_busy_servers_asked_again)
{
    hub.status = 404;
    ck_assert_int_eq(moetop("", FETCH), 3);
    SAYS("a/tiny: there is no such thing (HTTP 404)");
    hub.status = 403;
    ck_assert_int_eq(moetop("", FETCH), 3);
    SAYS("HTTP 403");
    hub.status = 0;
    hub.gone = true;
    ck_assert_int_eq(moetop("", FETCH), 3);
    SAYS("tiny-Q8_0.gguf: there is no such thing (HTTP 404)");
    hub.gone = false;
    hub.busy = 2;
    ck_assert_msg(moetop("", FETCH) == 0, "%s", said);
    is_whole();
}
END_TEST

START_TEST(a_disk_too_small_is_said_before_anything_comes)
{
    hub.huge = true;
    ck_assert_int_eq(moetop("", FETCH), 5);
    SAYS("are to come and the disk has room for ");
    SAYS("set HF_HOME");
    ck_assert_int_eq(asked, 0);
}
END_TEST

START_TEST(a_write_that_fails_is_said)
{
    ck_assert_int_eq(moetop("sh -c 'ulimit -f 2000; exec \"$@\"' sh", FETCH), 5);
    SAYS(".incomplete: File too large");
}
END_TEST

START_TEST(all_parts_come_and_their_absence_is_said)
{
    ck_assert_int_eq(moetop("", "-hf a/tiny:Q4_K --print-prompt -p hi"), 3); /* no GGUF at all */
    ck_assert(in_cache("snapshots/" COMMIT "/Q4_K/big-Q4_K-00001-of-00002.gguf"));
    ck_assert(in_cache("snapshots/" COMMIT "/Q4_K/big-Q4_K-00002-of-00002.gguf"));
    ck_assert_int_eq(moetop("", "-hf a/tiny:IQ4_XS --print-prompt -p hi"), 3);
    SAYS("1 of its 3 parts");
    ck_assert_int_eq(moetop("", "-hf a/tiny:Q5_0 --print-prompt -p hi"), 3);
    SAYS("there is no GGUF file of Q5_0; there is Q4_K/big-Q4_K-00001-of-00002.gguf, ");
}
END_TEST

START_TEST(no_listing_leads_out_of_the_cache)
{
    char path[PATH_MAX + 40];

    hub.wild = true;
    ck_assert_int_eq(moetop("", FETCH), 3);
    SAYS("neither a GGUF file nor config.json");
    snprintf(path, sizeof path, "find %s -name '*escaped*' | grep .", support_tmpdir());
    ck_assert_int_ne(system(path), 0);
}
END_TEST

START_TEST(without_a_network_what_is_there_is_used)
{
    ck_assert_int_eq(moetop("", FETCH), 0);
    MHD_stop_daemon(daemon_);
    daemon_ = NULL;
    ck_assert_msg(moetop("", FETCH) == 0, "%s", said);
    SAYS("nobody listens there; going on with what was fetched earlier");
    ck_assert_int_eq(moetop("", "-hf a/other --print-prompt -p hi"), 5);
    SAYS("nobody listens there");
}
END_TEST

START_TEST(bad_use_is_one_line)
{
    static const char *const names[] = {"tiny", "a/b/c", "../x",  "a/..", "a/b:",     "a/b:../c",
                                        "/b",   "a/",    "a b/c", "-a/b", "a/b:Q4:Q5"};
    char arguments[100];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(arguments, sizeof arguments, "--hf-repo='%s' -p hi", names[i]);
        ck_assert_msg(moetop("", arguments) == 2, "%s: %s", names[i], said);
        SAYS("give it as USER/REPO");
    }
    ck_assert_int_eq(moetop("", FETCH " -m x.gguf"), 2);
    SAYS("-m and -hf both name a model");
    ck_assert_int_eq(moetop("HF_ENDPOINT=ftp://x", FETCH), 2);
    SAYS("HF_ENDPOINT");
    ck_assert_int_eq(asked, 0);
    ck_assert_int_eq(moetop("", "-hf a/tiny --print-config"), 0);
    ck_assert_int_eq(asked, 0);
}
END_TEST

START_TEST(words_of_quants_are_whole_words)
{
    int number, count;

    ck_assert(hub_file_is_quant("x-Q4_K.gguf", "q4_k") &&
              hub_file_is_quant("x.Q4_K_M.gguf", "Q4_K_M"));
    ck_assert(!hub_file_is_quant("x-Q4_K_M.gguf", "Q4_K") &&
              !hub_file_is_quant("x-IQ4_K.gguf", "Q4_K"));
    ck_assert(hub_file_is_quant("Q8_0/x-00001-of-00002.gguf", "") &&
              !hub_file_is_quant("x.safetensors", ""));
    ck_assert_uint_eq(hub_file_part("x-00002-of-00005.gguf", &number, &count), 1);
    ck_assert(number == 2 && count == 5);
    hub_file_part("x.gguf", &number, &count);
    ck_assert(number == 1 && count == 1);
}
END_TEST

START_TEST(a_folder_is_what_the_program_reads)
{
    static const char *const paths[] = {"config.json",
                                        "consolidated.safetensors",
                                        "flax.msgpack",
                                        "model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors",
                                        "onnx/model.safetensors",
                                        "tokenizer.json"};
    struct hub_file files[7] = {0};
    struct hub_files all = {.file = files, .n = 7};
    const char *main;

    for (int i = 0; i < 7; i++)
        files[i].path = (char *)paths[i];
    ck_assert_int_eq(hub_files_choose(&all, &(struct hub_name){"a/b", ""}, &main, NULL), 0);
    ck_assert_str_eq(main, "");
    for (int i = 0; i < 7; i++)
        ck_assert_msg(files[i].wanted == (i == 0 || i == 3 || i == 4 || i == 6), "%s", paths[i]);
}
END_TEST

/* ---- on a client's wish: /api/pull ---- */

static void pull_environment(void)
{
    char endpoint[80];

    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", port);
    setenv("HF_ENDPOINT", endpoint, 1);
    setenv("HF_HOME", home, 1);
    setenv("NO_PROXY", "127.0.0.1", 1);
    unsetenv("HF_TOKEN");
    unsetenv("HF_HUB_CACHE");
}

static void pulling_server(void)
{
    static const char *const more[] = {"--allow-pull", NULL};

    serving_prepare = pull_environment;
    serving_start(more);
    serving_prepare = NULL;
}

/* It is downloaded line by line, and then served by the name that it was pulled by. */
START_TEST(a_model_is_pulled)
{
    struct reply r;
    json_t *o;

    pulling_server();
    r = serving_ask("POST", "/api/pull", NULL, "{\"model\": \"hf.co/a/tiny:q8_0\"}");
    ck_assert_int_eq(r.status, 200);
    ck_assert_msg(strncmp(r.body, "{\"status\":\"pulling manifest\"}\n", 30) == 0, "%s", r.body);
    ck_assert_msg(strstr(r.body, "\"completed\":") && strstr(r.body, "\"total\":"), "%s", r.body);
    ck_assert_msg(strcmp(r.body + r.n - 21, "{\"status\":\"success\"}\n") == 0, "%s", r.body);
    is_whole();
    free(r.head);
    o = serving_post("/api/chat",
                     "{\"model\": \"hf.co/a/tiny:q8_0\", \"stream\": false, \"messages\": "
                     "[{\"role\": \"user\", \"content\": \"Hello\"}], \"options\": "
                     "{\"num_predict\": 3}}",
                     200);
    ck_assert_int_eq(json_integer_value(json_object_get(o, "eval_count")), 3);
    json_decref(o);
    /* a second time it is there */
    o = serving_post("/api/pull", "{\"name\": \"hf.co/a/tiny:q8_0\", \"stream\": false}", 200);
    ck_assert_str_eq(json_string_value(json_object_get(o, "status")), "success");
    ck_assert_int_eq(asked, 1);
    json_decref(o);
}
END_TEST

START_TEST(what_cannot_be_pulled_is_said)
{
    static const struct {
        const char *body, *said;
        int status;
    } wrong[] = {
        {"{\"model\": \"hf.co/a/tiny:q3_k_m\", \"stream\": false}", "q3_k_m", 500},
        {"{\"model\": \"hf.co/a/other\", \"stream\": false}", "a/other", 500},
        {"{\"model\": \"llama3\"}", "hf.co/USER/REPO", 400},
        {"{\"model\": \"-m/x\"}", "hf.co/USER/REPO", 400},
        {"{}", "'model'", 400},
    };

    pulling_server();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json_t *o = serving_post("/api/pull", wrong[i].body, wrong[i].status);
        const char *text = json_string_value(json_object_get(o, "error"));

        ck_assert_msg(text && strcasestr(text, wrong[i].said), "%s: %s", wrong[i].body, text);
        json_decref(o);
    }
}
END_TEST

START_TEST(a_fetch_prints_where_it_is)
{
    ck_assert_msg(moetop("", "-hf a/tiny --fetch") == 0, "%s", said);
    ck_assert_msg(strstr(answer, "/snapshots/" COMMIT "/tiny-Q8_0.gguf\n"), "%s", answer);
    SAYS(" bytes\n");
    ck_assert_int_eq(moetop("", "--fetch"), 2);
    SAYS("-hf");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("fetch");
    TCase *t = tcase_create("fetch"), *names = tcase_create("names"), *pull = tcase_create("pull");

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_model_is_fetched_once_and_answers_as_the_file_does);
    tcase_add_test(t, a_cut_connection_goes_on_where_it_was);
    tcase_add_test(t, the_next_run_goes_on_too);
    tcase_add_test(t, a_server_without_ranges_begins_again);
    tcase_add_loop_test(t, a_part_without_its_place_goes_on, 0, 2);
    tcase_add_test(t, one_that_gives_nothing_more_is_given_up);
    tcase_add_test(t, what_is_damaged_is_not_kept);
    tcase_add_test(t, a_token_is_sent_and_asked_for);
    tcase_add_test(t, a_token_does_not_go_along_to_another_server);
    tcase_add_test(t, two_that_want_the_same_fetch_it_once);
    tcase_add_test(t, what_cannot_be_right_is_not_kept);
    tcase_add_test(t, refusals_are_said_and_busy_servers_asked_again);
    tcase_add_test(t, a_disk_too_small_is_said_before_anything_comes);
    tcase_add_test(t, a_write_that_fails_is_said);
    tcase_add_test(t, all_parts_come_and_their_absence_is_said);
    tcase_add_test(t, no_listing_leads_out_of_the_cache);
    tcase_add_test(t, without_a_network_what_is_there_is_used);
    tcase_add_test(t, bad_use_is_one_line);
    tcase_add_test(t, a_fetch_prints_where_it_is);
    suite_add_tcase(s, t);
    tcase_set_timeout(pull, 60);
    tcase_add_checked_fixture(pull, set_up, tear_down);
    tcase_add_checked_fixture(pull, NULL, serving_end_well);
    tcase_add_test(pull, a_model_is_pulled);
    tcase_add_test(pull, what_cannot_be_pulled_is_said);
    suite_add_tcase(s, pull);
    tcase_add_test(names, words_of_quants_are_whole_words);
    tcase_add_test(names, a_folder_is_what_the_program_reads);
    suite_add_tcase(s, names);
    return s;
}

int main(void)
{
    return support_run(suite());
}
