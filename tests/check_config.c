/* app/config: YAML files of settings, and what is said about wrong ones. */
#include "app/options/config.h"
#include "app/headless/documents.h"
#include "app/setup/recommended.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/file/gguf_write.h"
#include "tests/support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct options o;
static struct error e;

static void setup(void)
{
    e = (struct error){0};
    ck_assert_int_eq(options_init(&o, &e), 0);
}

static void teardown(void)
{
    options_release(&o);
}

static int read_text(const char *text)
{
    return config_parse(&o, text, strlen(text), "f.yaml", ORIGIN_CONFIG, OPTION_FILE, &e);
}

static void write_file(const char *path, const char *text)
{
    ck_assert_msg(file_replace(path, text, strlen(text), &e) == 0, "%s", e.text);
}

START_TEST(values_of_every_kind)
{
    char where[200];

    ck_assert_msg(read_text("# settings\ntemp: 0.25\ntop-k: 5\nignore-eos: yes\ncolor: "
                            "\"never\"\nstop: [one, \"two: three\"]\n"
                            "seed: 7\nmodel: /m/x.gguf\nsystem-prompt: |\n  be kind\n  be "
                            "brief\npace:\nthreads: ~\nmin-p: off\n") == 0,
                  "%s", e.text);
    ck_assert_double_eq(o.temp, 0.25);
    ck_assert_int_eq(o.top_k, 5);
    ck_assert(o.ignore_eos);
    ck_assert_int_eq(o.color, 2);
    ck_assert_uint_eq(o.stop.n, 2);
    ck_assert_str_eq(o.stop.items[1], "two: three");
    ck_assert_uint_eq(o.seed, 7);
    ck_assert_str_eq(o.model, "/m/x.gguf");
    ck_assert_str_eq(o.system_prompt, "be kind\nbe brief\n");
    ck_assert(!option_is_set(&o, OPTION_ID_pace) && !option_is_set(&o, OPTION_ID_threads));
    ck_assert_double_eq(o.min_p, 0);
    option_origin_text(&o, &option_table[OPTION_ID_top_k], where, sizeof where);
    ck_assert_str_eq(where, "file f.yaml:3");
}
END_TEST

START_TEST(an_alias_is_a_reference)
{
    ck_assert_int_eq(read_text("top-k: &k 5\nrepeat-last-n: *k\n"), 0);
    ck_assert_int_eq(o.repeat_last_n, 5);
}
END_TEST

START_TEST(empty_files_are_fine)
{
    static const char *const texts[] = {"",  "\n\n",   "# nothing\n", "---\n",
                                        "~", "null\n", "{}",          "%YAML 1.1\n---\n..."};

    ck_assert_msg(read_text(texts[_i]) == 0, "%d: %s", _i, e.text);
}
END_TEST

/* line:column and the remedy */
static const struct {
    const char *text, *says;
} wrong[] = {
    {"temp: 1\ntopp: 1\n", "f.yaml:2:1: unknown key 'topp'; did you mean 'top-p'?"},
    {"temp: 1\n  \ntop-p: 3\n", "f.yaml:3:8: top-p: 3 is out of range; it must be between 0 and 1"},
    {"temp: 1\ntop-k: 2\ntemp: 1\n", "f.yaml:3:1: 'temp' is given twice; the first is in line 1"},
    {"n: 3\n", "f.yaml:1:1: 'n' is written n-predict"},
    {"--temp: 3\n", "f.yaml:1:1: "},
    {"prompt: hi\n", "can only be given on the command line"},
    {"xyzzyplugh: 1\n", "moetop --print-config"},
    {"temp: {a: 1}\n", "f.yaml:1:7: temp: takes one value"},
    {"temp: [1]\n", "f.yaml:1:7: temp: takes one value"},
    {"stop: [a, [b]]\n", "f.yaml:1:11: stop: one value is expected"},
    {"stop: {a: b}\n", "takes one value, not keys"},
    {"- temp\n", "'key: value'"},
    {"just text\n", "'key: value'"},
    {"temp: 1\n---\ntemp: 2\n", "f.yaml:3:1: only one document"},
    {"temp: *nix\n", "undefined alias"},
    {"temp:\n\t1\n", "f.yaml:2:1: "},
    {"temp: \"1\n", "f.yaml:2:1: "},
    {"stop: [a\n", "f.yaml:2:1: "},
    {"\xff\xfe\xff", "UTF-8"},
    {"model: \"a\\0b\"\n", "zero byte"},
    {"[a, b]: c\n", "f.yaml:1:1: a key must be a word"},
    {"temp: 0.5 tokens\n", "'0.5 tokens' is no number"},
    {"color: sometimes\n", "none of auto, always, never"},
    {"<<: {temp: 1}\n", "unknown key '<<'"},
};

START_TEST(mistakes_are_located)
{
    ck_assert_int_eq(read_text(wrong[_i].text), ERR_USAGE);
    ck_assert_msg(strstr(e.text, wrong[_i].says), "%s: %s", wrong[_i].text, e.text);
}
END_TEST

/* Nine levels of nine aliases each would be 10^9 texts if they were expanded. */
START_TEST(an_alias_bomb_stays_small)
{
    char text[2048] =
        "xa: &a [\"lol\",\"lol\",\"lol\",\"lol\",\"lol\",\"lol\",\"lol\",\"lol\",\"lol\"]\n";

    for (char c = 'b'; c <= 'i'; c++) {
        char line[120];

        snprintf(line, sizeof line, "%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c - 1,
                 c - 1, c - 1, c - 1, c - 1, c - 1, c - 1, c - 1, c - 1);
        strcat(text, line);
    }
    strcat(text, "stop: *i\n");
    ck_assert_int_eq(read_text(text), ERR_USAGE);
    ck_assert(strstr(e.text, "unknown key 'xa'"));
}
END_TEST

START_TEST(deep_nesting_is_refused)
{
    static char text[200000];

    memset(text, '[', sizeof text - 1);
    ck_assert_int_eq(read_text(text), ERR_USAGE);
}
END_TEST

START_TEST(files)
{
    const char *dir = support_tmpdir();
    char path[256], folder[256];

    snprintf(path, sizeof path, "%s/none.yaml", dir);
    ck_assert_int_eq(config_read(&o, path, ORIGIN_CONFIG, OPTION_FILE, false, &e), 0);
    ck_assert_int_eq(config_read(&o, path, ORIGIN_CONFIG, OPTION_FILE, true, &e), ERR_USAGE);
    ck_assert(strstr(e.text, path));
    ck_assert_int_eq(config_read(&o, dir, ORIGIN_CONFIG, OPTION_FILE, true, &e), ERR_USAGE);
    ck_assert(strstr(e.text, "is a folder"));
    snprintf(path, sizeof path, "%s/large.yaml", dir);
    ck_assert_int_eq(truncate(path, 0), -1);
    write_file(path, "");
    ck_assert_int_eq(truncate(path, CONFIG_BYTES_MAX + 1), 0);
    ck_assert_int_eq(config_read(&o, path, ORIGIN_CONFIG, OPTION_FILE, true, &e), ERR_USAGE);
    ck_assert(strstr(e.text, "larger than 1 MiB"));
    snprintf(folder, sizeof folder, "%s/a/b//c", dir);
    ck_assert_int_eq(file_make_folders(folder, &e), 0);
    ck_assert_int_eq(file_make_folders(folder, &e), 0);
    ck_assert_int_eq(access(folder, X_OK), 0);
}
END_TEST

START_TEST(places_and_their_order)
{
    const char *dir = support_tmpdir();
    char path[256], dirs[600];

    for (const char *const *p =
             (const char *const[]){"home/moetop", "first/moetop", "second/moetop", NULL};
         *p; p++) {
        snprintf(path, sizeof path, "%s/%s", dir, *p);
        ck_assert_int_eq(file_make_folders(path, &e), 0);
        strcat(path, "/config.yaml");
        write_file(path, **p == 'h'   ? "temp: 1\n"
                         : **p == 'f' ? "temp: 2\ntop-k: 2\n"
                                      : "temp: 3\ntop-k: 3\nmin-p: 0.3\n");
    }
    snprintf(path, sizeof path, "%s/home", dir);
    snprintf(dirs, sizeof dirs, "%s/first:relative:%s/second", dir, dir);
    setenv("XDG_CONFIG_HOME", path, 1);
    setenv("XDG_CONFIG_DIRS", dirs, 1);
    ck_assert_msg(config_read_all(&o, &e) == 0, "%s", e.text);
    ck_assert_double_eq(o.temp, 1);
    ck_assert_int_eq(o.top_k, 2);
    ck_assert_double_eq(o.min_p, 0.3);
    /* --config takes their place */
    snprintf(path, sizeof path, "%s/own.yaml", dir);
    write_file(path, "top-k: 9\n");
    options_release(&o);
    options_init(&o, &e);
    ck_assert_int_eq(
        options_set(&o, &option_table[OPTION_ID_config], path, ORIGIN_FLAG, "--config", &e), 0);
    ck_assert_int_eq(config_read_all(&o, &e), 0);
    ck_assert_double_eq(o.temp, 0.8);
    ck_assert_int_eq(o.top_k, 9);
}
END_TEST

START_TEST(settings_beside_a_model)
{
    const char *dir = support_tmpdir();
    char model[256], path[256];

    snprintf(model, sizeof model, "%s/m.gguf", dir);
    snprintf(path, sizeof path, "%s/m.yaml", dir);
    write_file(model, "");
    write_file(path, "pace: 40\ntemp: 0.1\n");
    ck_assert_int_eq(options_set(&o, &option_table[OPTION_ID_temp], "0.9", ORIGIN_CONFIG, NULL, &e),
                     0);
    ck_assert_msg(config_read_model(&o, model, &e) == 0, "%s", e.text);
    ck_assert_double_eq(o.pace, 40);
    ck_assert_double_eq(o.temp, 0.9);
    write_file(path, "threads: 3\n");
    ck_assert_int_eq(config_read_model(&o, model, &e), ERR_USAGE);
    ck_assert(strstr(e.text, "put it into config.yaml"));
    snprintf(path, sizeof path, "%s/moetop.yaml", dir);
    write_file(path, "n-predict: 5\n");
    ck_assert_int_eq(config_read_model(&o, dir, &e), 0);
    ck_assert_int_eq(o.n_predict, 5);
    ck_assert_int_eq(config_read_model(&o, "/no/such/model.gguf", &e), 0);
}
END_TEST

/* The committed default.yaml is a configuration file, names every key, and changes nothing. */
START_TEST(default_yaml_is_the_default)
{
    char path[4096], before[256], after[256];
    static struct options fresh;

    snprintf(path, sizeof path, "%s/configs/default.yaml", support_root());
    ck_assert_msg(config_read(&o, path, ORIGIN_CONFIG, OPTION_FILE, true, &e) == 0, "%s", e.text);
    ck_assert_int_eq(options_init(&fresh, &e), 0);
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct option *p = &option_table[i];

        option_value(&fresh, p, before, sizeof before);
        option_value(&o, p, after, sizeof after);
        ck_assert_msg(!strcmp(before, after), "%s: %s in default.yaml, %s in the table", p->name,
                      after, before);
        if (p->place & OPTION_FILE && p->type != OPTION_TEXT && p->type != OPTION_PATH &&
            p->type != OPTION_LIST)
            ck_assert_msg(o.origin[i].from == ORIGIN_CONFIG, "%s is missing in default.yaml",
                          p->name);
    }
    options_release(&fresh);
}
END_TEST

/* What --print-config prints is a configuration file that gives the same values. */
START_TEST(printed_configuration_reads_back)
{
    static struct options again;
    char *text, a[256], b[256];
    size_t n;
    FILE *f = open_memstream(&text, &n);

    ck_assert_int_eq(read_text("temp: 0.3\nstop: [\"a\\\"b\", \"\\n\\e[0m\"]\nsystem-prompt: \"q: "
                               "'x' #y\"\nmodel: \"~/m\"\nseed: 99\npace: 3.5\n"),
                     0);
    documents_config(&o, f);
    fclose(f);
    ck_assert_int_eq(options_init(&again, &e), 0);
    ck_assert_msg(config_parse(&again, text, n, "printed", ORIGIN_CONFIG, OPTION_FILE, &e) == 0,
                  "%s\n%s", e.text, text);
    for (int i = 0; i < OPTION_COUNT; i++) {
        option_value(&o, &option_table[i], a, sizeof a);
        option_value(&again, &option_table[i], b, sizeof b);
        ck_assert_str_eq(a, b);
    }
    options_release(&again);
    free(text);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    int rc;

    for (long n = 0;; n++) {
        mem_fail_after(n);
        rc = read_text("temp: 1\nstop: [a, b]\nmodel: x\n");
        mem_fail_after(-1);
        if (rc == 0)
            break;
        ck_assert_int_lt(rc, 0);
        ck_assert(n < 100);
    }
}
END_TEST

static void check_origin(enum option_id id, const char *want)
{
    char where[200];

    option_origin_text(&o, &option_table[id], where, sizeof where);
    ck_assert_str_eq(where, want);
}

/* What the model's folder recommends is weaker than a file; what is out of range is left out. */
START_TEST(a_folder_recommends)
{
    char folder[200], path[256];

    snprintf(folder, sizeof folder, "%s/recommends", support_tmpdir());
    ck_assert_int_eq(file_make_folders(folder, &e), 0);
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    write_file(path, "{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20, \"top_p\": 7, "
                     "\"min_p\": \"much\", \"repetition_penalty\": 1.05}");
    ck_assert_int_eq(read_text("top-k: 9\n"), 0);
    ck_assert_msg(recommended_read(&o, folder, NULL, NULL, &e) == 0, "%s", e.text);
    ck_assert_double_eq(o.temp, 0.6);
    check_origin(OPTION_ID_temp, "recommended by the model generation_config.json:temperature");
    ck_assert_int_eq(o.top_k, 9);
    ck_assert_double_eq(o.top_p, 0.95);
    ck_assert_double_eq(o.min_p, 0.05);
    ck_assert_double_eq(o.repeat_penalty, 1.05);
    write_file(path, "{\"do_sample\": false, \"temperature\": 0.6}");
    ck_assert_int_eq(recommended_read(&o, folder, NULL, NULL, &e), 0);
    ck_assert_double_eq(o.temp, 0);
    write_file(path, "{\"temperature\": ");
    ck_assert_int_eq(recommended_read(&o, folder, NULL, NULL, &e), 0);
    ck_assert_int_eq(recommended_read(&o, "/nowhere", NULL, NULL, &e), 0);
}
END_TEST

START_TEST(a_gguf_file_recommends)
{
    struct gguf_writer *w;
    char path[200];

    snprintf(path, sizeof path, "%s/recommends.gguf", support_tmpdir());
    ck_assert_int_eq(gguf_write_open(&w, path, &e), 0);
    gguf_put_string(w, "general.architecture", "phimoe", 6);
    gguf_put_f32(w, "general.sampling.temp", 0.3f);
    gguf_put_u32(w, "general.sampling.top_k", 64);
    gguf_put_u32(w, "general.sampling.penalty_last_n", 32);
    ck_assert_int_eq(gguf_write_begin(w, &e), 0);
    ck_assert_int_eq(gguf_write_sync(w, &e), 0);
    ck_assert_int_eq(gguf_write_finish(w, &e), 0);
    ck_assert_int_eq(recommended_read(&o, path, NULL, NULL, &e), 0);
    ck_assert_double_eq(o.temp, 0.3);
    ck_assert_int_eq(o.top_k, 64);
    ck_assert_int_eq(o.repeat_last_n, 32);
    check_origin(OPTION_ID_top_k, "recommended by the model general.sampling.top_k");
    check_origin(OPTION_ID_top_p, "default");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("config");
    TCase *t = tcase_create("config");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, values_of_every_kind);
    tcase_add_test(t, an_alias_is_a_reference);
    tcase_add_loop_test(t, empty_files_are_fine, 0, 8);
    tcase_add_loop_test(t, mistakes_are_located, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(t, an_alias_bomb_stays_small);
    tcase_add_test(t, deep_nesting_is_refused);
    tcase_add_test(t, files);
    tcase_add_test(t, places_and_their_order);
    tcase_add_test(t, settings_beside_a_model);
    tcase_add_test(t, a_folder_recommends);
    tcase_add_test(t, a_gguf_file_recommends);
    tcase_add_test(t, default_yaml_is_the_default);
    tcase_add_test(t, printed_configuration_reads_back);
    tcase_add_test(t, every_allocation_may_fail);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
