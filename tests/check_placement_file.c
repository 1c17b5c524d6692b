/* Plans as YAML: what is read, what is refused and where, writing and reading back, the files that
 * come with the program. */
#include "app/setup/plan_file.h"
#include "engine/base/mem.h"
#include "tests/support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {"cpu", "opencl:0", "opencl:1"};
static const struct plan_shape shape = {8, 4, 1, names, 3};

static struct plan *good(const char *text)
{
    struct plan *p;
    struct error e = {0};

    ck_assert_msg(plan_file_parse(&p, text, strlen(text), "f.yaml", &shape, &e) == 0, "%s", e.text);
    return p;
}

static void attention_is(const struct plan *p, const char *digits)
{
    for (int l = 0; l < p->n_layers; l++)
        ck_assert_msg(p->attention[l] == digits[l] - '0', "attention of layer %d is on %d", l,
                      p->attention[l]);
}

START_TEST(selections)
{
    struct plan *p = good("attention:\n  - {layers: last 25%, device: gpu}\n  - {layers: '0, 2-3', "
                          "device: opencl:1}\n");

    attention_is(p, "20220011");
    ck_assert_str_eq(p->name, "f.yaml");
    plan_free(p);
    p = good("name: mine\nattention: [{layers: all, device: gpu}, {layers: [first 2, 5, 6-7], "
             "device: cpu}]\nhead: opencl:1");
    attention_is(p, "00111000");
    ck_assert_str_eq(p->name, "mine");
    ck_assert_int_eq(p->head, 2);
    plan_free(p);
    p = good("attention: [{device: gpu}]");
    attention_is(p, "11111111");
    plan_free(p);
    p = good("attention: [{layers: first 0, device: gpu}, {layers: first 100%, device: cpu}]");
    attention_is(p, "00000000");
    plan_free(p);
}
END_TEST

START_TEST(experts_of_layers)
{
    struct plan *p = good("shape: 8x4\nexperts:\n  - {layers: 1-2, experts: \"0,3\", device: "
                          "gpu}\n  - {experts: last 1, device: opencl:1}\nattention:\n");

    for (int l = 0; l < 8; l++)
        for (int x = 0; x < 4; x++)
            ck_assert_int_eq(plan_expert(p, l, x), x == 3 ? 2 : (l == 1 || l == 2) && x == 0);
    attention_is(p, "00000000");
    plan_free(p);
}
END_TEST

static const struct {
    const char *text, *says;
} bad[] = {
    {"", "f.yaml:1:1: the file is empty"},
    {"a: [", "f.yaml:"},
    {"- 1", "f.yaml:1:1: a plan has the keys"},
    {"name: x\nspeed: 3", "f.yaml:2:1: 'speed' is no key of a plan"},
    {"head: gpu\nhead: cpu", "f.yaml:2:1: 'head' is given twice"},
    {"head: [gpu]", "f.yaml:1:7: device:"},
    {"head: cuda:0", "f.yaml:1:7: device: 'cuda:0' is not here"},
    {"name: [x]", "f.yaml:1:7: name:"},
    {"shape: 9x4",
     "f.yaml:1:8: shape: this plan is for 9 layers of 4 experts; the model has 8 of 4"},
    {"shape: big", "f.yaml:1:8: shape: 'big'"},
    {"attention: gpu", "f.yaml:1:12: a list of rules"},
    {"attention:\n  - gpu", "f.yaml:2:5: a rule is {layers"},
    {"attention:\n  - {layers: 3}", "f.yaml:2:5: this rule names no device"},
    {"attention:\n  - {layers: 3, expert: 2, device: gpu}",
     "f.yaml:2:17: 'expert' is no key of a rule"},
    {"attention:\n  - {layers: 3, experts: 2, device: gpu}",
     "f.yaml:2:17: 'experts' is no key of a rule"},
    {"attention:\n  - {layers: 3, layers: 2, device: gpu}", "f.yaml:2:17: 'layers' is given twice"},
    {"attention:\n  - {layers: 8, device: gpu}",
     "f.yaml:2:14: layers: there is no number 8; this model has 0-7"},
    {"attention:\n  - {layers: last 9, device: gpu}", "there is no number 8"},
    {"attention:\n  - {layers: 5-2, device: gpu}", "is no selection"},
    {"attention:\n  - {layers: '3,', device: gpu}", "is no selection"},
    {"attention:\n  - {layers: first 101%, device: gpu}", "is no selection"},
    {"attention:\n  - {layers: -1, device: gpu}", "is no selection"},
    {"attention:\n  - {layers: {a: b}, device: gpu}", "is no selection"},
    {"attention:\n  - {layers: [[1]], device: gpu}", "a number or a range"},
    {"attention:\n  - {layers: 99999999999999999999, device: gpu}", "is no selection"},
    {"experts:\n  - {experts: 4, device: gpu}",
     "f.yaml:2:15: experts: there is no number 4; this model has 0-3"},
    {"experts:\n  - {stream: perhaps, device: gpu}", "f.yaml:2:14: stream: write yes or no"},
    {"experts:\n  - {stream: yes, device: cpu}", "f.yaml:2:14: stream: the CPU has all experts"},
    {"attention:\n  - {stream: yes, device: gpu}", "f.yaml:2:6: 'stream' is no key of a rule"},
    {"attention: &a [*a]", "f.yaml:"},
    {"head: \"g\\0pu\"", "device:"},
};

START_TEST(refusals_name_their_place)
{
    struct plan *p = (struct plan *)1;
    struct error e = {0};

    ck_assert_int_eq(plan_file_parse(&p, bad[_i].text, strlen(bad[_i].text), "f.yaml", &shape, &e),
                     ERR_USAGE);
    ck_assert_ptr_null(p);
    ck_assert_msg(strstr(e.text, bad[_i].says) != NULL, "%s\ngives: %s", bad[_i].text, e.text);
}
END_TEST

START_TEST(a_file_of_brackets_ends_at_once)
{
    size_t n = 1 << 20;
    char *text = malloc(n);
    struct plan *p;
    struct error e = {0};

    memset(text, '[', n);
    ck_assert_int_eq(plan_file_parse(&p, text, n, "f.yaml", &shape, &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "nested too deeply"));
    free(text);
}
END_TEST

START_TEST(no_gpu_is_said)
{
    struct plan_shape cpu_only = {8, 4, 0, names, 1};
    struct plan *p;
    struct error e = {0};

    ck_assert_int_eq(plan_file_parse(&p, "head: gpu", 9, "f.yaml", &cpu_only, &e), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "no device beside the CPU"));
}
END_TEST

START_TEST(written_plans_read_back)
{
    char path[300];

    snprintf(path, sizeof path, "%s/plan.yaml", support_tmpdir());
    for (unsigned seed = 1; seed < 60; seed++) {
        struct plan *p = plan_new("odd \"name\": \\ #1", 8, 4), *q;
        struct error e = {0};
        unsigned s = seed;
        int devices = 1 + (int)(seed % 3);

        for (int l = 0; l < 8; l++)
            p->attention[l] = (uint8_t)(rand_r(&s) % devices);
        for (int i = 0; i < 32; i++)
            p->experts[i] = (uint8_t)(rand_r(&s) % devices);
        for (int i = 0; i < 32; i++)
            p->streamed[i] = p->experts[i] && rand_r(&s) % 3 == 0;
        p->head = (uint8_t)(rand_r(&s) % devices);
        ck_assert_msg(plan_file_write(p, path, &shape, &e) == 0, "%s", e.text);
        ck_assert_msg(plan_file_read(&q, path, &shape, &e) == 0, "%s", e.text);
        ck_assert(plan_equal(p, q));
        ck_assert_str_eq(p->name, q->name);
        plan_free(p);
        plan_free(q);
    }
}
END_TEST

START_TEST(unwritable_and_unreadable)
{
    struct plan *p = plan_new("x", 8, 4), *q;
    struct error e = {0};

    ck_assert_int_eq(plan_file_write(p, "/nonexistent/x.yaml", &shape, &e), ERR_IO);
    ck_assert_int_eq(plan_file_read(&q, "/nonexistent/x.yaml", &shape, &e), ERR_IO);
    ck_assert_int_eq(plan_file_read(&q, "/tmp", &shape, &e), ERR_USAGE);
    plan_free(p);
}
END_TEST

/* What comes with the program fits every model. */
START_TEST(bundled_plans_fit_every_shape)
{
    static const int layers[] = {1, 2, 3, 8, 32, 61}, experts[] = {1, 2, 16, 256};
    char folder[2000], path[2400];
    struct dirent *d;
    DIR *dir;
    int n = 0;

    snprintf(folder, sizeof folder, "%s/configs/placements", support_root());
    dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    while ((d = readdir(dir))) {
        if (d->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        for (int i = 0; i < 6; i++)
            for (int j = 0; j < 4; j++) {
                struct plan_shape any = {layers[i], experts[j], 1, names, 2};
                struct plan *p;
                struct error e = {0};

                ck_assert_msg(plan_file_read(&p, path, &any, &e) == 0, "%s", e.text);
                ck_assert_int_eq(strncmp(p->name, d->d_name, strlen(p->name)), 0);
                plan_free(p);
            }
        n++;
    }
    closedir(dir);
    ck_assert_int_ge(n, 3);
}
END_TEST

START_TEST(names_are_found)
{
    char path[4096], dir[300], file[400];
    FILE *f;

    ck_assert(plan_file_find("./x.yaml", path, sizeof path));
    ck_assert(plan_file_find("x.yml", path, sizeof path));
    ck_assert(!plan_file_find("cpu", path, sizeof path));
    ck_assert(!plan_file_find("hot:600M", path, sizeof path));
    ck_assert(!plan_file_find("no-such-plan", path, sizeof path));
    ck_assert(plan_file_find("half", path, sizeof path));
    ck_assert_ptr_nonnull(strstr(path, "placements/half.yaml"));
    snprintf(dir, sizeof dir, "%s/conf", support_tmpdir());
    setenv("XDG_CONFIG_HOME", dir, 1);
    snprintf(file, sizeof file, "mkdir -p %s/moetop/placements", dir);
    ck_assert_int_eq(system(file), 0);
    snprintf(file, sizeof file, "%s/moetop/placements/half.yaml", dir);
    f = fopen(file, "w");
    fclose(f);
    ck_assert(plan_file_find("half", path, sizeof path));
    ck_assert_str_eq(path, file);
}
END_TEST

START_TEST(allocations_may_fail)
{
    const char *text =
        "name: a\nattention: [{layers: 1, device: gpu}]\nexperts: [{layers: 2, device: gpu}]\n";

    for (long n = 0; n < 10; n++) {
        struct plan *p;
        struct error e = {0};
        int rc;

        mem_fail_after(n);
        rc = plan_file_parse(&p, text, strlen(text), "f", &shape, &e);
        mem_fail_after(-1);
        if (rc == 0) {
            ck_assert_int_gt(n, 0);
            plan_free(p);
            return;
        }
        ck_assert_int_eq(rc, ERR_MEMORY);
    }
    ck_abort_msg("never succeeded");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("placement_file");
    TCase *t = tcase_create("placement_file");

    tcase_add_test(t, selections);
    tcase_add_test(t, experts_of_layers);
    tcase_add_loop_test(t, refusals_name_their_place, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(t, a_file_of_brackets_ends_at_once);
    tcase_add_test(t, no_gpu_is_said);
    tcase_add_test(t, written_plans_read_back);
    tcase_add_test(t, unwritable_and_unreadable);
    tcase_add_test(t, bundled_plans_fit_every_shape);
    tcase_add_test(t, names_are_found);
    tcase_add_test(t, allocations_may_fail);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
