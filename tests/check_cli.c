/* The real binary, as a shell sees it: exit codes, what stands on standard output and nothing else,
 * and what is said when things go wrong. */
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/file/weights.h"
#include "engine/text/tokenizer.h"
#include "tests/support.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char binary[PATH_MAX + 32];
static char out[1 << 20], err[1 << 16];
static struct error e;

static void find_binary(void)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);

    ck_assert_int_gt(n, 0);
    exe[n] = 0;
    *strrchr(exe, '/') = 0;
    *strrchr(exe, '/') = 0;
    snprintf(binary, sizeof binary, "%s/moetop", exe);
    ck_assert_msg(access(binary, X_OK) == 0, "%s is not built", binary);
}

static void read_back(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    size_t n;

    ck_assert(f != NULL);
    n = fread(text, 1, size - 1, f);
    text[n] = 0;
    fclose(f);
}

/* Runs a shell command in which $M is the program; fills out and err; returns the exit status. */
static int run(const char *command)
{
    static char line[PATH_MAX * 3];
    char o[256], r[256];
    int status;

    snprintf(o, sizeof o, "%s/out", support_tmpdir());
    snprintf(r, sizeof r, "%s/err", support_tmpdir());
    snprintf(line, sizeof line,
             "cd / && M='%s'; T='%s'; export TMPDIR=$T XDG_CONFIG_HOME=$T/none "
             "XDG_STATE_HOME=$T/state XDG_CACHE_HOME=$T/cache "
             "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=1; ( %s ) >%s 2>%s </dev/null",
             binary, support_tmpdir(), command, o, r);
    status = system(line);
    read_back(o, out, sizeof out);
    read_back(r, err, sizeof err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void expect(const char *command, int code)
{
    int got = run(command);

    ck_assert_msg(got == code, "%s: exit status %d instead of %d\nstdout: %.300s\nstderr: %.600s",
                  command, got, code, out, err);
}

/* One line on stderr that begins with the program's name. */
static void expect_line(const char *command, int code, const char *says)
{
    expect(command, code);
    ck_assert_msg(!strncmp(err, "moetop: ", 8) && strstr(err, says), "%s: %s", command, err);
    ck_assert_msg(strchr(err, '\n') == err + strlen(err) - 1, "%s: more than one line: %s", command,
                  err);
    ck_assert_msg(!*out, "%s: stdout is not empty: %s", command, out);
}

static const struct {
    const char *command;
    int code;
    const char *says;
} failures[] = {
    {"$M --nonsense", 2, "unknown option --nonsense"},
    {"$M --tmp 1", 2, "did you mean --temp?"},
    {"$M --top-p 3 -p x", 2, "between 0 and 1"},
    {"$M -p x --config /no/such.yaml", 2, "/no/such.yaml"},
    {"echo 'temp: hot' >$T/c.yaml; $M -p x --config $T/c.yaml", 2, "c.yaml:1:7: temp"},
    {"MOETOP_TOP_K=many $M -p x", 2, "MOETOP_TOP_K"},
    {"$M -m /no/such/model.gguf -p x", 3, "/no/such/model.gguf"},
    {"echo garbage >$T/g.gguf; $M -m $T/g.gguf -p x", 3, "g.gguf"},
    {"mkdir -p $T/empty; $M -m $T/empty -p x", 3, "empty"},
    {"$M -m '' -p x", 2, "-m"},
    {"$M --doctor -m /no/such/model.gguf >$T/doctor", 1, "findings is bad"},
    {"[ -e /usr/local/share/moetop ] && { echo '1 of 1 findings is bad' >&2; exit 1; }; "
     "mkdir -p $T/alone && cp $M $T/alone/moetop && $T/alone/moetop --doctor >$T/doctor; s=$?; "
     "grep -q 'the bundled model cannot be opened: models/' $T/doctor && "
     "grep -q '^  moetop -hf ' $T/doctor && exit $s",
     1, "findings is bad"},
    {"$M --doctor >/dev/full", 5, "No space left on device"},
    {"$M --json -p x", 2, "--json goes with --fit, --analyze, --doctor, --routing-report or --abl"},
    {"$M --doctor --json --report-json $T/d.json", 2, "leave one of the two away"},
    {"$M -p x --override-kv temp", 2, "--override-kv: 'temp' is no override; write KEY=TYPE:VALUE"},
    {"$M -p x --override-kv general.architecture=str:strange,*.block_count=int:2", 3,
     "architecture strange"},
    {"$M -p x --override-kv *.block_count=int:2,general.architecture=str:strange", 3,
     "architecture strange"},
    {"$M -p x --rope-freq-base 0.5", 3, "rope.freq_base is 0.5"},
    {"$M -p x --override-kv general.architecture=str:strange", 3, "architecture strange"},
    {"$M -f /no/such/prompt", 5, "/no/such/prompt"},
    {"$M -p x -sysf /no/such/system", 5, "/no/such/system"},
    {"$M -p - -f -", 2, "standard input"},
    {"printf 'a\\0b' | $M -f -", 2, "byte 2 is zero"},
    {"$M -p hi -n 3 --stats-json /no/such/dir/s.json", 5, "/no/such/dir/s.json"},
    {"$M -p hi -n 20 >/dev/full", 5, "No space left on device"},
    {"$M --help >/dev/full", 5, "No space left on device"},
    {"$M --print-config >/dev/full", 5, "No space left on device"},
    {"$M -p hi --place nowhere", 2, "nowhere"},
    {"$M --color maybe -p hi", 2, "--color: 'maybe' is none of auto, always, never"},
    {"$M -dev nosuch -p hi", 2, "there is no device nosuch; --list-devices names them"},
    {"$M -dev nosuch --plain", 2, "there is no device nosuch; --list-devices names them"},
    {"mkfifo $T/f 2>/dev/null; timeout 60 $M -p x --config $T/f", 2,
     "a pipe; a configuration file is expected"},
    {"mkdir -p $T/none/moetop; mkfifo $T/none/moetop/config.yaml 2>/dev/null; timeout 60 $M -p x; "
     "s=$?; rm $T/none/moetop/config.yaml; exit $s",
     2, "a pipe; a configuration file is expected"},
    {"mkfifo $T/f.yaml 2>/dev/null; timeout 60 $M -p x --place $T/f.yaml", 2,
     "a pipe; a placement is expected"},
    {"mkfifo $T/f 2>/dev/null; timeout 60 $M -p x --profile $T/f --place hot", 1,
     "a pipe; a profile is expected"},
    {"mkfifo $T/f 2>/dev/null; timeout 60 $M --bench -p 2 -n 0 --bench-text $T/f", 5,
     "a pipe; a text for measuring is expected"},
    {"mkfifo $T/f 2>/dev/null; timeout 60 $M --bench-compare $T/f $T/f", 1,
     "a pipe; a benchmark report is expected"},
    {"mkfifo $T/f 2>/dev/null; timeout 60 $M -p x --log-file $T/f", 5, "a pipe that nobody reads"},
    {"mkfifo $T/f 2>/dev/null; timeout 60 $M -p x -n 0 --stats-json $T/f", 5,
     "a pipe that nobody reads"},
    {"mkfifo $T/f 2>/dev/null; timeout 60 $M -p x -n 0 --trace $T/f", 5,
     "a pipe that nobody reads"},
    {"mkfifo $T/f 2>/dev/null; echo x | timeout 60 $M --batch - -n 0 -o $T/f", 5,
     "a pipe that nobody reads"},
};

START_TEST(failures_have_their_codes_and_one_line)
{
    expect_line(failures[_i].command, failures[_i].code, failures[_i].says);
}
END_TEST

/* Pipes that are documented go on working: what is read as a prompt or a batch, and what somebody
 * reads from. */
START_TEST(pipes_that_belong_there)
{
    expect("mkfifo $T/p; echo hi >$T/p & timeout 60 $M -f $T/p -n 3 -s 3", 0);
    ck_assert(*out);
    expect("echo hi >$T/p & timeout 60 $M --batch $T/p -n 3 -s 3", 0);
    ck_assert(strstr(out, "\"index\":0"));
    /* the reader of a pipe that nobody opened waits for ever */
    expect("cat $T/p >$T/got & timeout 60 $M -p hi -n 3 --stats-json $T/p; s=$?; [ $s = 0 ] || "
           "kill $!; wait; grep -q tok_s $T/got && exit $s",
           0);
    expect("cat $T/p >$T/got & echo hi | timeout 60 $M --batch - -n 3 -o $T/p; s=$?; [ $s = 0 ] || "
           "kill $!; wait; grep -q index $T/got && exit $s",
           0);
    expect("$M -p hi -n 3 --stats-json /dev/stderr", 0);
    ck_assert(strstr(err, "tok_s"));
    expect("$M --config /dev/null -p hi -n 3", 0);
}
END_TEST

/* A caller that closes the first descriptors: nothing lands in files that happen to be opened next,
 * and an answer that is lost is an error. */
START_TEST(closed_descriptors)
{
    expect("printf '{\"prompt\":\"hi\"}\\n' | $M --batch - -n 2 -o $T/closed 2>&-", 0);
    expect("cat $T/closed", 0);
    ck_assert_msg(out[0] == '{' && strchr(out, '\n') == out + strlen(out) - 1, "%s", out);
    expect_line("$M -p hi -n 3 >&-", 5, "Bad file descriptor");
    expect("timeout 60 $M --plain <&-", 0);
    expect("$M -p hi -n 3 <&- 2>&-", 0);
    ck_assert(*out);
}
END_TEST

START_TEST(a_file_may_reach_its_limit)
{
    expect("yes hi | head -200 >$T/many; ulimit -f 4; $M --batch $T/many -n 4 -o $T/limited", 5);
    ck_assert_msg(strstr(err, "File too large"), "%s", err);
}
END_TEST

START_TEST(a_batch_of_a_mark_is_empty)
{
    expect("printf '\\357\\273\\277' | $M --batch -", 0);
    ck_assert_str_eq(out, "");
    expect("printf '\\357\\273\\277hi' | $M --batch - -n 2", 0);
    ck_assert(strstr(out, "\"index\":0"));
}
END_TEST

/* Work goes on without a folder that others can write to. */
START_TEST(a_cache_folder_of_everybody)
{
    expect("mkdir $T/open; chmod 777 $T/open; $M -p hi -n 3 --cache-dir $T/open", 0);
    ck_assert_msg(strstr(err, "/open is writable by others") && strstr(err, "chmod go-w"), "%s",
                  err);
    ck_assert_msg(strchr(err, '\n') == err + strlen(err) - 1, "%s", err);
    expect("ls -A $T/open", 0);
    ck_assert_str_eq(out, "");
}
END_TEST

/* ---- weights that are no numbers ---- */

static const char *const poisoned[] = {"token_embd.weight",
                                       "output.weight",
                                       "output_norm.weight",
                                       "output_norm.bias",
                                       "output.bias",
                                       "blk.0.attn_norm.weight",
                                       "blk.1.attn_norm.bias",
                                       "blk.1.attn_q.weight",
                                       "blk.1.attn_q.bias",
                                       "blk.0.attn_k.weight",
                                       "blk.1.attn_v.weight",
                                       "blk.0.attn_output.weight",
                                       "blk.0.attn_output.bias",
                                       "blk.0.ffn_norm.weight",
                                       "blk.1.ffn_norm.bias",
                                       "blk.1.ffn_gate_inp.weight",
                                       "blk.0.ffn_gate_exps.weight",
                                       "blk.1.ffn_up_exps.weight",
                                       "blk.0.ffn_down_exps.weight"};
static const uint16_t no_numbers[] = {0x7e00, 0x7c00, 0xfc00}; /* F16: NaN, the infinities */
#define POISONS (int)(sizeof poisoned / sizeof *poisoned * sizeof no_numbers / sizeof *no_numbers)

START_TEST(weights_that_are_no_numbers)
{
    char copy[PATH_MAX], says[200];

    snprintf(copy, sizeof copy, "%s/poison.gguf", support_tmpdir());
    snprintf(says, sizeof says, "the tensor %s holds values that are no numbers", poisoned[_i / 3]);
    support_poison(support_demo(), poisoned[_i / 3], no_numbers[_i % 3], copy);
    expect_line("$M -m $T/poison.gguf -p hi -n 1", 3, says);
    ck_assert_str_eq(out, "");
    if (_i % 3)
        return;
    if (_i) { /* while loading: no line of a batch is begun */
        expect_line("printf 'hi\\nho\\n' | $M -m $T/poison.gguf --batch - -n 4", 3, says);
        expect("echo hi | $M -m $T/poison.gguf --plain -n 4", 3);
    } else { /* embeddings are read when they are used */
        expect("printf 'hi\\nho\\n' | $M -m $T/poison.gguf --batch - -n 4", 1);
        ck_assert_msg(strstr(out, "\"index\":1") && strstr(out, "\"code\":\"value\"") &&
                          strstr(out, says),
                      "%s", out);
        expect("echo hi | $M -m $T/poison.gguf --plain -n 4", 0);
    }
    ck_assert_msg(strstr(err, says) || !_i, "%s", err);
}
END_TEST

/* ---- what is built ---- */

/* The release program defends itself against mistakes that nobody found yet. */
START_TEST(the_release_program_is_hardened)
{
    if (!strstr(binary, "/release/")) {
        printf("SKIPPED: this build is not the release\n");
        return;
    }
    expect("readelf -hlW $M", 0);
    ck_assert_msg(strstr(out, "DYN") && strstr(out, "GNU_RELRO"),
                  "neither at a random place nor its tables read-only: %.300s", out);
    expect("readelf -lW $M | grep GNU_STACK | grep RWE", 1); /* no code on the stack */
    expect("readelf -dW $M", 0);
    ck_assert_msg(strstr(out, "BIND_NOW") && !strstr(out, "RPATH") && !strstr(out, "RUNPATH"), "%s",
                  out);
    expect(
        "readelf -sW --dyn-syms $M | grep -c -e __stack_chk_fail -e __snprintf_chk -e __memcpy_chk",
        0);
    ck_assert_msg(atoi(out) >= 3, "%s", out);
}
END_TEST

/* Everybody can read what root installs, whatever root's umask is; and MODE names what make builds.
 */
START_TEST(make_does_what_it_says)
{
    char command[PATH_MAX + 300];

    snprintf(command, sizeof command, "unset MAKEFLAGS MAKELEVEL MFLAGS; make -n -C '%s' MODE=asan",
             support_root());
    expect(command, 0);
    ck_assert_msg(!strstr(out, "build/release/"), "%.500s", out);
    snprintf(command, sizeof command,
             "unset MAKEFLAGS MAKELEVEL MFLAGS; cp $M $T/moetop; umask 077; "
             "make -s -C '%s' install DESTDIR=$T/root PROGRAM=$T/moetop BUILT=$T && ! find $T/root "
             "! -perm -444 | grep .",
             support_root());
    expect(command, 0);
    expect("find $T/root -name '*moetop*' -type f | grep -c -e completions -e site-functions", 0);
    ck_assert_str_eq(out, "3\n");
}
END_TEST

/* What is read would be lost: refused before a byte is written. */
START_TEST(quantize_does_not_replace_what_it_reads)
{
    char command[600];

    snprintf(command, sizeof command,
             "cp '%s/configs/models/tiny-storyteller-Q8_0.gguf' $T/same.gguf; ln -sf same.gguf "
             "$T/link.gguf; cp $T/same.gguf $T/before.gguf; "
             "$M --quantize q4_0 $T/same.gguf $T/link.gguf",
             support_root());
    expect(command, 2);
    ck_assert_msg(strstr(err, "is what is read"), "%s", err);
    expect("cmp $T/same.gguf $T/before.gguf", 0);
}
END_TEST

/* Its words for two tensors, and a word that is none. */
START_TEST(quantize_names_head_and_embeddings)
{
    char command[600];

    snprintf(command, sizeof command,
             "$M --quantize q4_0 '%s/configs/models/tiny-storyteller-Q8_0.gguf' $T/named.gguf "
             "--output-tensor-type q5_0 --token-embedding-type F16 -t 2",
             support_root());
    expect(command, 0);
    ck_assert_msg(strstr(out, "token_embd       q8_0    f16"), "%s", out);
    snprintf(command, sizeof command,
             "$M --quantize q4_0 '%s/configs/models/tiny-storyteller-Q8_0.gguf' $T/never.gguf "
             "--output-tensor-type q9",
             support_root());
    expect(command, 2);
    ck_assert_msg(strstr(err, "--output-tensor-type: 'q9' is no type"), "%s", err);
}
END_TEST

/* --imatrix-text: the file that it leaves gives the same model again, another one than without. */
START_TEST(quantize_by_a_text)
{
    static const char *const demo = "configs/models/tiny-storyteller-Q8_0.gguf";
    char command[900];

    snprintf(command, sizeof command,
             "echo 'Once upon a time there was a fox. It lived in the forest, and it was happy. "
             "One day the fox met a bird.' > $T/text.txt; ln -s '%s/%s' $T/demo.gguf; "
             "$M --quantize q4_0 $T/demo.gguf $T/by.gguf --imatrix-text $T/text.txt -t 2",
             support_root(), demo);
    expect(command, 0);
    ck_assert_msg(strstr(err, "by.gguf.imatrix.gguf: what 1 chunks of") &&
                      strstr(err, "of 128 experts were never chosen"),
                  "%s", err);
    ck_assert_msg(strstr(out, "rounded by importance"), "%s", out);
    expect("cd $T && $M --quantize q4_0 demo.gguf again.gguf --imatrix by.gguf.imatrix.gguf && "
           "cmp again.gguf by.gguf",
           0);
    expect("cd $T && $M --quantize q4_0 demo.gguf without.gguf; cmp -s without.gguf by.gguf", 1);
    expect("$M --imatrix-text $T/none.txt --quantize q4_0 $T/demo.gguf $T/never.gguf", 5);
    ck_assert_msg(strstr(err, "none.txt"), "%s", err);
    expect("printf '' | $M --imatrix-text - --quantize q4_0 $T/demo.gguf $T/never.gguf; test -e "
           "$T/never.gguf",
           1);
}
END_TEST

START_TEST(help_version_and_tables_work_without_anything)
{
    expect("$M --help", 0);
    ck_assert(strstr(out, "Usage: moetop") && !*err);
    expect("echo 'broken: [' >$T/b.yaml; $M -h --config $T/b.yaml", 0);
    expect("$M --version", 0);
    ck_assert_str_eq(out, "moetop " MOETOP_VERSION "\n");
    expect("$M --completion bash", 0);
    ck_assert(strstr(out, "complete -F _moetop moetop"));
    expect("$M --print-config --temp 0.5", 0);
    ck_assert(strstr(out, "# flag --temp") && strstr(out, "# default"));
    expect("echo 'broken: [' >$T/b.yaml; $M --completion fish --config $T/b.yaml", 0);
    expect("MOETOP_TOPK=3 $M --print-config", 0);
    ck_assert_msg(strstr(err, "MOETOP_TOPK is not used; did you mean MOETOP_TOP_K?"), "%s", err);
    expect("MOETOP_TEMPERATURE=3 MOETOP_PROMPT=x MOETOP_ZEBRA=1 $M --print-config", 0);
    ck_assert_msg(strstr(err, "MOETOP_TEMPERATURE is not used; did you mean MOETOP_TEMP?"), "%s",
                  err);
    ck_assert_msg(strstr(err,
                         "MOETOP_PROMPT is not used: --prompt stands on the command line only"),
                  "%s", err);
    ck_assert_msg(strstr(err, "MOETOP_ZEBRA is not used; moetop(1) lists"), "%s", err);
    expect("MOETOP_TEMP=1 $M --print-config", 0);
    ck_assert_str_eq(err, "");
    expect("ACCESSIBLE=1 $M --print-config", 0);
    ck_assert(strstr(out, "# environment ACCESSIBLE"));
    expect("MOETOP_TOP_K=3 $M --print-config", 0);
    ck_assert(strstr(out, "# environment MOETOP_TOP_K"));
}
END_TEST

/* The answer of the golden file, from another directory, byte for byte, and nothing beside it. */
START_TEST(the_answer_and_nothing_else)
{
    static char text[1 << 20], command[8192], model[PATH_MAX];
    struct weight_file *f;
    struct tokenizer *t;
    char path[PATH_MAX], *expected, *prompt;
    json_t *root, *ids;
    int list[512], n = 0;
    FILE *file;

    file = fopen(support_path("golden/demo/perplexity.json"), "r");
    n = (int)fread(text, 1, sizeof text - 1, file);
    fclose(file);
    root = json_read(text, (size_t)n, "perplexity.json", &e);
    ck_assert_msg(root != NULL, "%s", e.text);
    ids = (json_t *)json_walk(root, "greedy_chat.answer_ids");
    n = (int)json_array_size(ids);
    ck_assert(n > 10 && n <= 512);
    for (int i = 0; i < n; i++)
        list[i] = (int)json_integer_value(json_array_get(ids, (size_t)i));
    snprintf(model, sizeof model, "%s/configs/models/tiny-storyteller-Q8_0.gguf", support_root());
    ck_assert_int_eq(weight_file_open(&f, model, true, &e), 0);
    ck_assert_int_eq(tokenizer_load(&t, f, &e), 0);
    ck_assert_int_eq(tokenizer_decode(t, list, n, true, &expected, NULL, &e), 0);
    prompt = mem_string(json_string_value(
        json_walk(root, "greedy_chat.messages[0].content")
            ? json_walk(root, "greedy_chat.messages[0].content")
            : json_object_get(json_array_get(json_walk(root, "greedy_chat.messages"), 0),
                              "content")));
    ck_assert_ptr_nonnull(prompt);
    /* The golden text comes from BF16 weights: Q8_0 agrees for a while. The two runs of ours must
     * agree with each other wholly. */
    snprintf(command, sizeof command, "$M -p '%s' --temp 0 -n %d", prompt, n);
    expect(command, 0);
    ck_assert_msg(!*err, "stderr: %s", err);
    ck_assert_msg(strlen(out) > 200 && !strncmp(out, expected, 30), "%.200s\n%.200s", out,
                  expected);
    snprintf(text, sizeof text, "%s", out);
    snprintf(path, sizeof path, "%s/prompt.txt", support_tmpdir());
    ck_assert_int_eq(file_replace(path, prompt, strlen(prompt), &e), 0);
    snprintf(command, sizeof command, "$M -f $T/prompt.txt --temp 0 -n %d -t 1 -ub 3", n);
    expect(command, 0);
    ck_assert_str_eq(out, text);
    snprintf(command, sizeof command, "$M -p - --temp 0 -n %d --kernels scalar <$T/prompt.txt", n);
    expect(command, 0);
    ck_assert_str_eq(out, text);
    mem_free(prompt);
    mem_free(expected);
    tokenizer_free(t);
    weight_file_close(f);
    json_decref(root);
}
END_TEST

START_TEST(options_reach_the_engine)
{
    static char first[sizeof out];

    expect("$M -p 'Tell me a story.' --seed 7 -n 30", 0);
    snprintf(first, sizeof first, "%s", out);
    expect("$M -p 'Tell me a story.' -s 7 -n 30 -t 1", 0);
    ck_assert_str_eq(out, first);
    expect("$M -p 'Tell me a story.' --seed 8 -n 30", 0);
    ck_assert_str_ne(out, first);
    expect("MOETOP_SEED=7 $M -p 'Tell me a story.' -n 30", 0);
    ck_assert_str_eq(out, first);
    expect("echo 'seed: 7' >$T/s.yaml; $M -p 'Tell me a story.' -n 30 --config $T/s.yaml", 0);
    ck_assert_str_eq(out, first);
    expect("$M -p 'Tell me a story.' --temp 0 -n 0", 0);
    ck_assert_str_eq(out, "");
    expect("$M -p 'Once upon a time' --raw --temp 0 -n 8", 0);
    snprintf(first, sizeof first, "%s", out);
    expect("$M -p 'Once upon a time' --temp 0 -n 8", 0);
    ck_assert_str_ne(out, first);
    expect("$M -p 'Tell me a story.' --temp 0 -n 60 -r upon", 0);
    ck_assert_msg(!strstr(out, "upon"), "%s", out);
}
END_TEST

START_TEST(stats_of_one_answer)
{
    static char text[1 << 16];
    json_t *root;

    expect("$M -p hello -n 20 --ignore-eos --stats --stats-json $T/s.json", 0);
    ck_assert_msg(strstr(err, "20 generated") && strstr(err, "tokens/s") && strstr(err, "evenness"),
                  "%s", err);
    ck_assert(!strstr(out, "tokens/s"));
    snprintf(text, sizeof text, "%s/s.json", support_tmpdir());
    read_back(text, text, sizeof text);
    root = json_read(text, strlen(text), "s.json", &e);
    ck_assert_msg(root != NULL, "%s", e.text);
    ck_assert_int_eq(json_integer_value(json_walk(root, "tokens.generated")), 20);
    ck_assert_str_eq(json_string_value(json_walk(root, "stop_reason")), "length");
    json_decref(root);
}
END_TEST

/* What cannot be opened is listed on stdout all the same, and refused everywhere. */
START_TEST(fit_lists_layers_before_it_refuses)
{
    char command[PATH_MAX + 40];

    snprintf(command, sizeof command, "$M --fit -m '%s'",
             support_path("golden/describe/nemotron_h"));
    expect(command, 3);
    ck_assert_msg(strstr(out, "layer 7 ") && strstr(out, "keeps 10496 bytes"), "%s", out);
    ck_assert_msg(strstr(err, "nemotron_h: holds no model"), "%s", err);
    ck_assert_ptr_null(strstr(out, "KV cache"));
    snprintf(command, sizeof command,
             "mkdir $T/unread && sed s/awq/aqlm/ '%s'/config.json > $T/unread/config.json",
             support_path("golden/describe/qwen3_moe-awq-g32"));
    expect(command, 0);
    expect("$M -p x -m $T/unread", 3);
    ck_assert_msg(strstr(err, "packed by aqlm"), "%s", err);
    expect("$M --fit", 0);
    ck_assert_msg(strstr(out, "routed experts: ") && strstr(out, " bytes a token"), "%s", out);
}
END_TEST

/* The bundled model on the 30 texts whose likelihood the official code gave: within 0.5 %. */
START_TEST(perplexity_of_lines)
{
    static char text[1 << 20];
    json_t *root, *t;
    size_t i;
    FILE *f;

    read_back(support_path("golden/demo/perplexity.json"), text, sizeof text);
    root = json_read(text, strlen(text), "perplexity.json", &e);
    snprintf(text, sizeof text, "%s/lines.jsonl", support_tmpdir());
    f = fopen(text, "w");
    json_array_foreach(json_object_get(root, "texts"), i, t)
    {
        json_t *line = json_pack("{s:O}", i % 2 ? "text" : "ids",
                                 json_object_get(t, i % 2 ? "text" : "ids"));

        json_dumpf(line, f, JSON_COMPACT);
        fputc('\n', f);
        json_decref(line);
    }
    fclose(f);
    expect("$M --perplexity-lines $T/lines.jsonl --parse-special --quality-json $T/q.json", 0);
    ck_assert_msg(strstr(out, "{\"lines\": 30, \"tokens\": 6018, "), "%s", out);
    json_decref(root);
    snprintf(text, sizeof text, "%s/q.json", support_tmpdir());
    read_back(text, text, sizeof text);
    root = json_read(text, strlen(text), "q.json", &e);
    ck_assert_double_eq_tol(json_real_value(json_object_get(root, "perplexity")), 5.853447,
                            0.005 * 5.85);
    json_decref(root);
    expect("echo '{\"ids\": [1, 99999]}' | $M --perplexity-lines -", 1);
    ck_assert_msg(strstr(err, "line 1: element 1"), "%s", err);
    expect("echo nonsense | $M --perplexity-lines -", 1);
}
END_TEST

/* A setting beside itself diverges by nothing, beside another by something; the file is small. */
START_TEST(divergence_of_settings)
{
    const char *kl;

    expect("$M --perplexity default -c 128 --chunks 3 --kl-divergence-base $T/base", 0);
    ck_assert_msg(strstr(out, "Final estimate: PPL = ") && strstr(out, "189 tokens of 3 chunks"),
                  "%s", out);
    expect("$M --kl-divergence --kl-divergence-base $T/base -c 128 -t 1 --kernels scalar", 0);
    ck_assert_msg(strstr(out, "Same top p                    : 100.000000"), "%s", out);
    ck_assert_ptr_nonnull(kl = strstr(out, "Mean    KLD"));
    ck_assert_double_eq_tol(atof(strchr(kl, ':') + 1), 0.0, 1e-5);
    expect("$M --kl-divergence --kl-divergence-base $T/base -c 128 -ctk q8_0 -ctv q8_0", 0);
    ck_assert_ptr_nonnull(kl = strstr(out, "Mean    KLD"));
    ck_assert_msg(atof(strchr(kl, ':') + 1) > 1e-6 && atof(strchr(kl, ':') + 1) < 0.05, "%s", kl);
    expect("$M --kl-divergence --kl-divergence-base $T/base -c 64", 2);
    ck_assert_msg(strstr(err, "give -c 128"), "%s", err);
    expect("$M --kl-divergence", 2);
    expect("$M --perplexity default -c 128 --ppl-stride 32 --chunks 2", 0);
    ck_assert_msg(strstr(out, "64 tokens of 2 chunks of 144"), "%s", out);
    expect("echo short | $M --perplexity -", 1);
    ck_assert_msg(strstr(err, "smaller -c"), "%s", err);
}
END_TEST

START_TEST(choices_of_three_kinds)
{
    expect("printf '%s\\n' "
           "'{\"question\": \"The dog wagged its\", \"options\": [\"moon\", \"tail\"], "
           "\"answer\": 1}' "
           "'{\"ctx\": \"Lily was very\", \"endings\": [\"happy.\", \"refrigerator.\"], "
           "\"label\": \"0\"}' "
           "'{\"question\": \"The sun is in the\", \"choices\": {\"text\": [\"shoe\", "
           "\"sky\"], \"label\": [\"A\", \"B\"]}, \"answerKey\": \"B\"}' "
           "'{\"question\": \"The sun is in the\", \"options\": [\"shoe\", \"sky\"], "
           "\"answer\": \"A\"}' | $M --choices -",
           0);
    ck_assert_msg(strstr(out, "accuracy             75.00 %") &&
                      strstr(out, "by chance          50.00 %"),
                  "%s", out);
    expect("echo '{\"question\": \"x\", \"options\": [\"a\", \"b\"], \"answer\": 2}' | "
           "$M --choices -",
           1);
    ck_assert_msg(strstr(err, "line 1: \"answer\" is none of its 2 options"), "%s", err);
    expect("echo '{\"question\": \"\", \"options\": [\"a\", \"b\"], \"answer\": 1}' | "
           "$M --choices -",
           1);
    ck_assert_msg(strstr(err, "nothing predicts them"), "%s", err);
}
END_TEST

START_TEST(fit_table_and_refusal)
{
    expect("$M --fit", 0);
    ck_assert_msg(strstr(out, "KV cache") && strstr(out, "It fits."), "%s", out);
    expect("$M --fit -c 16000000 -ctk f32 -ctv f32", run("$M --fit -c 16000000 -ctk f32 -ctv f32"));
    if (strstr(out, "It fits.")) {
        support_skip("this machine holds sixteen million tokens");
        return;
    }
    expect("$M -p x -c 16000000 -ctk f32 -ctv f32", 4);
    ck_assert_msg(strstr(err, "KV cache") && strstr(err, "it fits with") && strstr(err, "--force"),
                  "%s", err);
    ck_assert_str_eq(out, "");
}
END_TEST

static const json_t *row_of(const json_t *root, const char *end)
{
    const json_t *rows = json_object_get(root, "models"), *found = NULL;

    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *path = json_string_value(json_object_get(row, "path"));

        if (strlen(path) >= strlen(end) && !strcmp(path + strlen(path) - strlen(end), end))
            found = row;
    }
    return found;
}

static double price_of(const json_t *root, size_t setting, const char *what)
{
    return json_number_value(
        json_object_get(json_array_get(json_object_get(root, "settings"), setting), what));
}

/* A setting that changes nothing costs nothing, to the last bit; a smaller cache costs something
 * and takes less memory. */
START_TEST(prices_of_settings)
{
    json_t *root;

    expect("$M --price 'threads=1,ctk=q8_0+ctv=q8_0' -c 128 --chunks 2 --quality-json $T/p.json",
           0);
    ck_assert_msg(strstr(out, "126 positions in 2 chunks of 128") &&
                      strstr(out, "| ctk=q8_0+ctv=q8_0 |") &&
                      strstr(out, "\nthreads=1: no position differs") &&
                      !strstr(out, "\nctk=q8_0+ctv=q8_0: "),
                  "%s", out);
    expect("cat $T/p.json", 0);
    ck_assert_ptr_nonnull(root = json_loads(out, 0, NULL));
    ck_assert_uint_eq(json_array_size(json_object_get(root, "settings")), 3);
    ck_assert(price_of(root, 1, "mean_kl") < 1e-15 && price_of(root, 1, "top_changed") <= 0.0);
    ck_assert(price_of(root, 1, "log_ratio") == 0.0);
    ck_assert_msg(price_of(root, 2, "mean_kl") > 1e-9 && price_of(root, 2, "max_kl") < 20.0, "%g",
                  price_of(root, 2, "mean_kl"));
    ck_assert(price_of(root, 2, "memory_bytes") < price_of(root, 0, "memory_bytes"));
    ck_assert(price_of(root, 2, "decode_tokens_per_second") > 0.0);
    json_decref(root);
    expect("$M --price all -c 128 --chunks 1", 0);
    ck_assert_msg(strstr(out, "cache-type-k=f16+cache-type-v=f16") && !strstr(out, "dtype=") &&
                      strstr(out, "| experts-used=1 "),
                  "%s", out);
    expect("$M --price temp=1", 2);
    ck_assert_msg(strstr(err, "temp changes nothing"), "%s", err);
    expect("$M --price cache-type=q8_0", 2);
    ck_assert_msg(strstr(err, "did you mean cache-type-"), "%s", err);
    expect("$M --price dtype", 2);
    expect("$M --price ctk=q8_0,", 2);
    expect("echo short >$T/short && $M --price ctk=q8_0 --perplexity $T/short", 1);
    ck_assert_msg(strstr(err, "fewer than one chunk"), "%s", err);
}
END_TEST

/* Files, folders and parts below a folder, each once; what cannot be read beside what can; and a
 * setting with which what does not fit does. */
START_TEST(fit_of_many_models)
{
    char command[2 * PATH_MAX + 400];
    const json_t *row;
    json_t *root;

    snprintf(command, sizeof command,
             "mkdir -p $T/many/deep/.hidden && cd $T/many && ln -s .. deep/round && "
             "cp -r '%s' deep/folder && cp '%s' a.gguf && cp a.gguf deep/.hidden/b.gguf && "
             "head -c 3000 a.gguf >cut-00001-of-00002.gguf && cp a.gguf cut-00002-of-00002.gguf && "
             "cp a.gguf alone-00002-of-00003.gguf && : >empty.gguf && echo no >text.txt && "
             "cp a.gguf \"$(printf 'deep/\\377.gguf')\"",
             support_path("golden/families/qwen3_moe"),
             support_path("../configs/models/tiny-storyteller-Q8_0.gguf"));
    expect(command, 0);
    expect("$M --fit $T/many --report-json $T/fit.json", 0);
    ck_assert_msg(strstr(out, "of 6 models in ") && strstr(out, "deep/folder") &&
                      strstr(out, "empty file") && !strstr(out, "hidden") && !strstr(out, "round"),
                  "%s", out);
    expect("cat $T/fit.json", 0);
    ck_assert_ptr_nonnull(root = json_loads(out, 0, NULL));
    ck_assert_uint_eq(json_array_size(json_object_get(root, "models")), 6);
    row = row_of(root, "/a.gguf");
    ck_assert_str_eq(json_string_value(json_object_get(row, "type")), "q8_0");
    ck_assert(json_is_true(json_object_get(row, "fits")));
    ck_assert_int_eq(json_integer_value(json_object_get(row, "context_that_fits")), 1024);
    ck_assert_int_gt(json_integer_value(json_object_get(row, "bytes_per_token")), 1 << 20);
    ck_assert_ptr_nonnull(json_object_get(row_of(root, "cut-00001-of-00002.gguf"), "error"));
    ck_assert_ptr_nonnull(json_object_get(row_of(root, "alone-00002-of-00003.gguf"), "error"));
    json_decref(root);
    /* no machine holds this; a shorter context would */
    expect("$M --fit -c 16000000 -ctk f32 -ctv f32 -np 64 $T/many/a.gguf $T/many/deep/folder", 0);
    ck_assert_msg(strstr(out, "0 of 2 models") && strstr(out, "too much; it fits with ") &&
                      strstr(out, "-c "),
                  "%s", out);
    expect("$M --fit -m $T/many/deep/folder --report-json -", 0);
    ck_assert_ptr_nonnull(root = json_loads(out, 0, NULL));
    ck_assert_ptr_nonnull(row_of(root, "/folder"));
    json_decref(root);
    expect("$M --fit --device opencl:0 $T/many/a.gguf --report-json -", 0);
    ck_assert_ptr_nonnull(root = json_loads(out, 0, NULL));
    row = row_of(root, "/a.gguf");
    if (json_is_null(json_object_get(row, "device")))
        support_skip("no OpenCL device");
    else
        ck_assert_int_gt(json_integer_value(json_object_get(row, "device_bytes")), 8 << 20);
    json_decref(root);
    expect("mkdir $T/none && $M --fit $T/none", 3);
    ck_assert_msg(strstr(err, "no model in it"), "%s", err);
    expect("$M --fit $T/nowhere", 5);
}
END_TEST

START_TEST(analyze_says_what_a_model_is)
{
    char command[PATH_MAX + 100];
    json_t *root, *parameters, *machine;

    snprintf(command, sizeof command, "$M --analyze '%s'", support_demo());
    expect(command, 0);
    ck_assert_msg(strstr(out, "together") && strstr(out, "2 of 16 are taken") &&
                      strstr(out, "* experts are 80 % of the parameters") &&
                      strstr(out, "* fits here: "),
                  "%s", out);
    snprintf(command, sizeof command, "$M --analyze '%s' --json", support_demo());
    expect(command, 0);
    ck_assert_ptr_nonnull(root = json_loads(out, 0, NULL));
    parameters = json_object_get(root, "parameters");
    ck_assert_int_eq(json_integer_value(json_object_get(parameters, "total")), 15778816);
    ck_assert_int_eq(json_integer_value(json_object_get(parameters, "active_per_token")), 3720448);
    machine = json_object_get(root, "machine");
    ck_assert(json_is_true(json_object_get(machine, "fits")));
    ck_assert_uint_gt(json_array_size(json_object_get(root, "hints")), 3);
    json_decref(root);
    expect("$M --analyze $T/nowhere", 5);
    expect("head -c 3000 '$M' >$T/cut.gguf; $M --analyze $T/cut.gguf", 3);
}
END_TEST

/* Ctrl-C in the middle: 130, and what was printed stays. */
START_TEST(an_interrupted_answer_stays)
{
    expect("$M -p 'Tell me a long story.' --ignore-eos -n 900 --pace 50 --temp 0 & p=$!; while ! [ "
           "-s $T/out ] && kill -0 $p; do sleep 0.05; done; sleep 0.3; kill -INT $p; "
           "wait $p",
           130);
    ck_assert_int_gt((int)strlen(out), 0);
    ck_assert_msg(strstr(err, "interrupted"), "%s", err);
    /* while the prompt is still being read: opening the fifo for writing waits for its reader, who
     * handles signals by then */
    expect("mkfifo $T/fifo; $M -f $T/fifo & p=$!; exec 3>$T/fifo; sleep 0.2; kill -TERM $p; sleep "
           "0.5; exec 3>&-; wait $p",
           130);
    ck_assert_str_eq(out, "");
}
END_TEST

START_TEST(a_reader_that_leaves)
{
    expect("{ $M -p 'Tell me a story.' --ignore-eos -n 300; echo $? >$T/code; } | head -c 20", 0);
    ck_assert_uint_eq(strlen(out), 20);
    snprintf(out, sizeof out, "%s/code", support_tmpdir());
    read_back(out, out, sizeof out);
    ck_assert_str_eq(out, "141\n");
    ck_assert_str_eq(err, "");
    expect(
        "{ printf 'Hello\\n' | $M --pace off --ignore-eos -n 300; echo $? >$T/code; } | head -c 20",
        0);
    ck_assert_str_eq(err, "");
    snprintf(out, sizeof out, "%s/code", support_tmpdir());
    read_back(out, out, sizeof out);
    ck_assert_str_eq(out, "141\n");
}
END_TEST

/* The model file vanishes while it is used: the mapping keeps it; shrunk, it is an error and no
 * crash. */
START_TEST(a_model_that_vanishes_or_shrinks)
{
    char copy[PATH_MAX + 128];

    snprintf(copy, sizeof copy,
             "cp '%s/configs/models/tiny-storyteller-Q8_0.gguf' $T/m.gguf; $M -m $T/m.gguf -p hi "
             "-n 40 --ignore-eos --pace 80 & p=$!; "
             "while ! [ -s $T/out ] && kill -0 $p; do sleep 0.05; done; rm -f $T/m.gguf; wait $p",
             support_root());
    expect(copy, 0);
    ck_assert_int_gt((int)strlen(out), 20);
    snprintf(copy, sizeof copy,
             "cp '%s/configs/models/tiny-storyteller-Q8_0.gguf' $T/m.gguf; $M -m $T/m.gguf -p hi "
             "-n 80 --ignore-eos --pace 80 & p=$!; "
             "while ! [ -s $T/out ] && kill -0 $p; do sleep 0.05; done; : >$T/m.gguf; wait $p",
             support_root());
    expect(copy, 5);
    ck_assert_msg(strstr(err, "m.gguf"), "%s", err);
}
END_TEST

/* Moved as a whole or installed, the program finds its model; alone, it says where it looked. */
START_TEST(the_bundled_model_is_found)
{
    char command[PATH_MAX * 3];

    snprintf(command, sizeof command,
             "mkdir -p $T/p/bin $T/p/share/moetop/models && cp $M $T/p/bin/ && cp "
             "'%s/configs/models/tiny-storyteller-Q8_0.gguf' "
             "$T/p/share/moetop/models/ && cd $T && PATH=$T/p/bin:$PATH moetop -p hi -n 3",
             support_root());
    expect(command, 0);
    expect("mkdir -p $T/tree && cp $M $T/tree/ && ln -sfn $T/p/share/moetop $T/tree/configs && "
           "$T/tree/moetop -p hi -n 3",
           0);
    if (access(MOETOP_PREFIX "/share/moetop", F_OK) == 0)
        return; /* an installed moetop lends its model */
    expect("mkdir -p $T/alone/bin && cp $M $T/alone/bin/ && $T/alone/bin/moetop -p hi -n 3", 3);
    ck_assert_msg(strstr(err, "-m") && strstr(err, "share/moetop"), "%s", err);
}
END_TEST

START_TEST(without_opencl_one_line_says_so_and_the_cpu_answers)
{
    expect_line("OCL_ICD_VENDORS=/nonexistent $M -p Hello --temp 0 -n 3 --place gpu >$T/answer", 0,
                "no OpenCL platform");
    expect("$M -p Hello --temp 0 -n 3 >$T/plain; [ -s $T/answer ] && cmp $T/answer $T/plain", 0);
}
END_TEST

/* What few runs need is not loaded by every start, and a library that is broken or missing is named
 * by what needs it alone. */
START_TEST(libraries_are_opened_when_they_are_needed)
{
    expect("ldd $M >$T/needed && ! grep -E 'lib(curl|microhttpd|dnnl|clblast|crypto)' $T/needed",
           0);
    expect("mkdir -p $T/broken && for l in $(ls /usr/lib/*-linux-gnu | grep -E "
           "'^lib(curl|microhttpd|dnnl|clblast|crypto)[.]so'); do : >$T/broken/$l; done; ls "
           "$T/broken/*",
           0);
    expect("LD_LIBRARY_PATH=$T/broken $M -p Hello --temp 0 -n 3", 0);
    expect_line("LD_LIBRARY_PATH=$T/broken $M --connect http://127.0.0.1:1 -p hi", 1,
                "(install package lib");
    expect_line("LD_LIBRARY_PATH=$T/broken $M -p Hello -n 3 --prompt-cache $T/prompts", 5,
                "(install package libssl3)");
    expect("LD_LIBRARY_PATH=$T/broken timeout 60 $M --serve --port 0 --plain", 1);
    ck_assert_msg(strstr(err, "libmicrohttpd") && strstr(err, "(install package lib"), "%s", err);
}
END_TEST

START_TEST(a_device_that_is_not_there_is_named)
{
    int code = run("$M -dev opencl:99 --place gpu -p hi -n 3");

    if (strstr(err, "no OpenCL platform") || strstr(err, "left out")) {
        printf("SKIPPED: no OpenCL driver answers here\n");
        return;
    }
    ck_assert_msg(code == 2 &&
                      strstr(err, "there is no device opencl:99; --list-devices names them"),
                  "%d: %s", code, err);
}
END_TEST

START_TEST(control_characters_of_a_file_name_are_escaped)
{
    expect("$M -m \"$(printf '/no/\\033[31mred')\" -p x", 3);
    ck_assert_msg(!strchr(err, 27) && strstr(err, "\\e[31mred"), "%s", err);
}
END_TEST

/* ---- the chat line by line ---- */

START_TEST(messages_from_a_pipe)
{
    expect("printf 'Hello\n/show temp\n\"\"\"Tell me\na story.\"\"\"\nHi' | $M -n 12 --temp 0 "
           "--pace off",
           0);
    ck_assert_msg(strstr(out, "temp ") && !strchr(out, 27), "%s", out);
    expect("printf 'Hello' | $M --pace off -m /no/such/model.gguf", 3);
    expect("! ls $T/state/moetop/chats/*.json; printf 'Hello\n/save\n' | $M -n 12 --pace off "
           "2>$T/said && grep -q 'saved in .*/chats/' $T/said && ls $T/state/moetop/chats/*.json",
           0);
    expect("$M </dev/null", 0);
    ck_assert_str_eq(out, "");
    expect("printf 'Hello\n' | $M -n 300 --ignore-eos --pace off >/dev/full", 5);
    ck_assert_msg(strstr(err, "No space left"), "%s", err);
    expect("printf 'Hello\n' | $M --screen-reader -n 8 --pace off", 0);
    ck_assert_msg(!strncmp(out, "Screen reader mode, set by flag --screen-reader.", 48) &&
                      strstr(out, "\nAssistant:\n") && strstr(out, "End of answer. "),
                  "%s", out);
}
END_TEST

/* A terminal of our own: what a user types and what comes back. */
struct session {
    pid_t pid;
    int fd;
    size_t n;
};

/* More options after argv[0]; TERM as given. */
static void session_open(struct session *s, const char *term, const char *const *arguments)
{
    char state[300];

    snprintf(state, sizeof state, "%s/state", support_tmpdir());
    s->n = 0;
    *out = 0;
    s->pid = forkpty(&s->fd, NULL, NULL, NULL);
    ck_assert_int_ge(s->pid, 0);
    if (s->pid == 0) {
        char *argv[16] = {"moetop"};

        for (int i = 0; arguments[i]; i++)
            argv[i + 1] = (char *)arguments[i];
        setenv("TERM", term, 1);
        setenv("XDG_STATE_HOME", state, 1);
        setenv("XDG_CONFIG_HOME", state, 1);
        execv(binary, argv);
        _exit(127);
    }
}

/* Reads until text stands in the output, at most a minute: a busy screen comes in many pieces. */
static void session_await(struct session *s, const char *text)
{
    uint64_t end = clock_now() + 60 * UINT64_C(1000000000);

    while (clock_now() < end) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};

        if (strstr(out, text))
            return;
        if (poll(&p, 1, 50) > 0) {
            ssize_t got = read(s->fd, out + s->n, sizeof out - 1 - s->n);

            if (got <= 0)
                break;
            s->n += (size_t)got;
            out[s->n] = 0;
        }
    }
    ck_assert_msg(strstr(out, text) != NULL, "'%s' never came; so far: %.2000s", text,
                  s->n > 2000 ? out + s->n - 2000 : out);
}

/* Forgets what came so far, then types. */
static void session_type(struct session *s, const char *text)
{
    s->n = 0;
    *out = 0;
    ck_assert_int_eq(write(s->fd, text, strlen(text)), (ssize_t)strlen(text));
}

static int session_end(struct session *s)
{
    int status;
    char rest[4096];

    while (read(s->fd, rest, sizeof rest) > 0)
        ;
    close(s->fd);
    ck_assert_int_eq(waitpid(s->pid, &status, 0), s->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Ctrl-C until the program ends: a stalled machine may let the time between two of them pass. */
static void session_quit(struct session *s)
{
    uint64_t end = clock_now() + 60 * UINT64_C(1000000000);
    bool over = false;

    while (!over && clock_now() < end) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        uint64_t again = clock_now() + UINT64_C(1000000000);

        session_type(s, "\003");
        while (!over && clock_now() < again)
            if (poll(&p, 1, 50) > 0)
                over = read(s->fd, out, sizeof out - 1) <= 0;
    }
    ck_assert_msg(over, "it did not quit");
}

START_TEST(line_mode_on_a_terminal)
{
    struct session s;

    session_open(&s, _i ? "xterm-256color" : "dumb",
                 _i ? (const char *const[]){"--plain", "--pace", "off", "-n", "12", "--temp", "0",
                                            NULL}
                    : (const char *const[]){"--pace", "off", "-n", "12", "--temp", "0", NULL});
    session_await(&s, "> ");
    session_type(&s, "Hello\n");
    session_await(&s, "moetop: ");
    session_await(&s, "> ");
    session_type(&s, "/show temp\n");
    session_await(&s, "temp ");
    session_await(&s, "> ");
    ck_assert_msg(!strchr(out, 27), "an escape: %s", out);
    session_type(&s, "typed");
    session_await(&s, "typed");
    session_type(&s, "\003"); /* drops the line */
    session_await(&s, "\n> ");
    session_type(&s, "\003");
    session_await(&s, "once more quits");
    if (_i) {
        session_type(&s, "\003");
        ck_assert_int_eq(session_end(&s), 130);
    } else {
        session_await(&s, "> ");
        session_type(&s, "\004");
        ck_assert_int_eq(session_end(&s), 0);
    }
}
END_TEST

/* Esc gives an edited message back, nothing is cut; a Ctrl-C counts as the second one only when
 * nothing came between. */
START_TEST(the_screen_undoes_nothing_unasked)
{
    struct session s;
    char command[600];

    session_open(&s, "xterm-256color",
                 (const char *const[]){"--pace", "off", "-n", "12", "--temp", "0", "--ignore-eos",
                                       NULL});
    session_await(&s, "say something");
    session_type(&s, "Hello\r");
    session_await(&s, "length");
    session_type(&s, "/edit\r");
    session_await(&s, "Ctrl-C leaves");
    session_type(&s, "\033");
    session_await(&s, "stays as it was");
    session_type(&s, "\003");
    session_await(&s, "again quits");
    session_type(&s, "Q"); /* a letter that nothing else on the screen has */
    session_await(&s, "Q");
    session_type(&s, "\003\003"); /* drops the line; is a first one again */
    session_await(&s, "again quits");
    session_quit(&s);
    ck_assert_int_eq(session_end(&s), 0);
    snprintf(command, sizeof command,
             "[ $(grep -c '\"role\"' '%s'/state/moetop/chats/*.json) = 2 ]", support_tmpdir());
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* The terminal goes away in the middle of an answer: the transcript has what was shown. */
START_TEST(a_terminal_that_goes_away)
{
    struct session s;
    char command[600];

    session_open(&s, "dumb",
                 (const char *const[]){"--pace", "50", "-n", "900", "--ignore-eos", "--temp", "0",
                                       NULL});
    session_await(&s, "> ");
    session_type(&s, "Tell me a story about a fox.\n");
    session_await(&s, "upon");
    close(s.fd); /* SIGHUP */
    ck_assert_int_eq(waitpid(s.pid, NULL, 0), s.pid);
    snprintf(command, sizeof command, "grep -q 'upon' '%s'/state/moetop/chats/*.json",
             support_tmpdir());
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* A crash is said in one line, the details are on disk, and the signal is still what the process
 * died of. */
START_TEST(a_crash_leaves_a_trace)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    support_skip("sanitizers report crashes themselves");
#else
    expect("$M -p hi -n 900 --ignore-eos --pace 50 & p=$!; while ! [ -s $T/out ] && kill -0 $p; do "
           "sleep 0.05; done; kill -SEGV $p; wait $p",
           128 + SIGSEGV);
    ck_assert_msg(strstr(err, "moetop: crashed (segmentation fault); details are in ") &&
                      strstr(err, "/state/moetop/crash.log\n"),
                  "%s", err);
    expect("grep -q 'segmentation fault' $T/state/moetop/crash.log", 0);
#endif
}
END_TEST

/* A model of fairy tales would hardly say so. */
START_TEST(what_a_grammar_kept_out_is_told)
{
    json_t *root, *o;

    expect("$M -p hi -n 20 --temp 0 --grammar 'root ::= \"zebra\"' --stats-json $T/ruled.json && "
           "cat $T/ruled.json >&2",
           0);
    ck_assert_str_eq(out, "zebra");
    root = json_loads(strchr(err, '{'), JSON_DISABLE_EOF_CHECK, NULL);
    o = json_object_get(root, "grammar");
    ck_assert_int_gt(json_integer_value(json_object_get(o, "tokens")), 1);
    ck_assert(json_number_value(json_object_get(o, "forbidden")) > 0.9 &&
              json_number_value(json_object_get(o, "forbidden")) <= 1.0);
    json_decref(root);
    expect("$M -p hi -n 3 --stats-json $T/free.json && cat $T/free.json >&2", 0);
    root = json_loads(strchr(err, '{'), JSON_DISABLE_EOF_CHECK, NULL);
    ck_assert(json_is_null(json_object_get(root, "grammar")));
    json_decref(root);
}
END_TEST

/* hwloc's line about a container without /sys (without asking the processor itself, too). */
START_TEST(what_libraries_say_goes_to_the_log)
{
    expect("mkdir -p $T/bare; HWLOC_COMPONENTS=-x86 HWLOC_FSROOT=$T/bare $M -p hi -n 2 --log-file "
           "$T/l; cat $T/l",
           0);
    ck_assert_msg(!*err, "%s", err);
    ck_assert_msg(strstr(out, "hwloc finds no cores, as without /sys: ") != NULL, "%s", out);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cli");
    TCase *t = tcase_create("cli");

    tcase_set_timeout(t, 240);
    tcase_add_checked_fixture(t, find_binary, NULL);
    tcase_add_loop_test(t, failures_have_their_codes_and_one_line, 0,
                        sizeof failures / sizeof *failures);
    tcase_add_test(t, help_version_and_tables_work_without_anything);
    tcase_add_test(t, pipes_that_belong_there);
    tcase_add_test(t, closed_descriptors);
    tcase_add_test(t, a_file_may_reach_its_limit);
    tcase_add_test(t, a_batch_of_a_mark_is_empty);
    tcase_add_test(t, a_cache_folder_of_everybody);
    tcase_add_loop_test(t, weights_that_are_no_numbers, 0, POISONS);
    tcase_add_test(t, the_release_program_is_hardened);
    tcase_add_test(t, make_does_what_it_says);
    tcase_add_test(t, quantize_does_not_replace_what_it_reads);
    tcase_add_test(t, quantize_by_a_text);
    tcase_add_test(t, quantize_names_head_and_embeddings);
    tcase_add_test(t, the_answer_and_nothing_else);
    tcase_add_test(t, options_reach_the_engine);
    tcase_add_test(t, stats_of_one_answer);
    tcase_add_test(t, fit_lists_layers_before_it_refuses);
    tcase_add_test(t, analyze_says_what_a_model_is);
    tcase_add_test(t, perplexity_of_lines);
    tcase_add_test(t, divergence_of_settings);
    tcase_add_test(t, choices_of_three_kinds);
    tcase_add_test(t, fit_table_and_refusal);
    tcase_add_test(t, prices_of_settings);
    tcase_add_test(t, fit_of_many_models);
    tcase_add_test(t, an_interrupted_answer_stays);
    tcase_add_test(t, a_reader_that_leaves);
    tcase_add_test(t, a_model_that_vanishes_or_shrinks);
    tcase_add_test(t, the_bundled_model_is_found);
    tcase_add_test(t, a_crash_leaves_a_trace);
    tcase_add_test(t, messages_from_a_pipe);
    tcase_add_loop_test(t, line_mode_on_a_terminal, 0, 2);
    tcase_add_test(t, the_screen_undoes_nothing_unasked);
    tcase_add_test(t, a_terminal_that_goes_away);
    tcase_add_test(t, without_opencl_one_line_says_so_and_the_cpu_answers);
    tcase_add_test(t, libraries_are_opened_when_they_are_needed);
    tcase_add_test(t, a_device_that_is_not_there_is_named);
    tcase_add_test(t, control_characters_of_a_file_name_are_escaped);
    tcase_add_test(t, what_a_grammar_kept_out_is_told);
    tcase_add_test(t, what_libraries_say_goes_to_the_log);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
