/* engine/base/file and engine/base/cache: what is read waits for nobody, what is kept for later can
 * be trusted. */
#include "engine/base/cache.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "tests/support.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct file_kind kind = {"list of tests", 10, ERR_USAGE};
static struct error e;
static char path[600], folder[400];

static const char *at(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    ck_assert_msg(file_replace(at(name), text, strlen(text), &e) == 0, "%s", e.text);
}

static void fresh_folder(void)
{
    snprintf(folder, sizeof folder, "%s/cache", support_tmpdir());
    mkdir(folder, 0700);
}

/* What may be read, and what it holds; NULL: refused, with these words. */
static void expect_read(const char *name, const char *text, int code, const char *says)
{
    char *got;
    size_t n;
    int rc = file_read(name[0] == '/' ? name : at(name), &kind, &got, &n, &e);

    if (text) {
        ck_assert_msg(rc == 0, "%s", e.text);
        ck_assert_uint_eq(n, strlen(text));
        ck_assert_str_eq(got, text);
    } else {
        ck_assert_int_eq(rc, code);
        ck_assert_ptr_null(got);
        ck_assert_msg(strstr(e.text, says) && strstr(e.text, name), "%s", e.text);
    }
    mem_free(got);
}

START_TEST(reading_takes_files_and_waits_for_nobody)
{
    put("short", "abc");
    put("full", "0123456789");
    put("over", "0123456789x");
    put("empty", "");
    ck_assert_int_eq(mkfifo(at("pipe"), 0600), 0);
    expect_read("short", "abc", 0, NULL);
    expect_read("full", "0123456789", 0, NULL);
    expect_read("empty", "", 0, NULL);
    expect_read("/dev/null", "", 0, NULL);
    expect_read("over", NULL, ERR_USAGE, "larger than 10 bytes; this is no list of tests");
    expect_read("pipe", NULL, ERR_USAGE, "a pipe; a list of tests is expected");
    expect_read("/dev/zero", NULL, ERR_USAGE, "a device");
    expect_read("/dev", NULL, ERR_USAGE, "a folder");
    expect_read("missing", NULL, ERR_IO, "No such file");
}
END_TEST

START_TEST(writing_into_a_pipe_needs_a_reader)
{
    int in, out;

    ck_assert_int_eq(mkfifo(at("sink"), 0600), 0);
    ck_assert_int_eq(file_open_write(path, O_CREAT | O_APPEND, 0600, &e), ERR_IO);
    ck_assert_msg(strstr(e.text, "a pipe that nobody reads"), "%s", e.text);
    ck_assert_int_eq(file_replace(path, "x", 1, &e), ERR_IO);
    ck_assert_int_ge(in = open(path, O_RDONLY | O_NONBLOCK), 0);
    ck_assert_int_ge(out = file_open_write(path, O_CREAT | O_APPEND, 0600, &e), 0);
    ck_assert(!(fcntl(out, F_GETFL) & O_NONBLOCK));
    close(out);
    close(in);
}
END_TEST

START_TEST(folders_are_private)
{
    struct stat st;

    ck_assert_int_eq(file_make_folders(at("a/b"), &e), 0);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0700);
    ck_assert_int_eq(stat(at("a"), &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0700);
}
END_TEST

static void expect_kept(const char *name, const char *text)
{
    char *got;
    size_t n;

    ck_assert_msg(cache_read(at(name), 100, &got, &n, &e) == 0, "%s", e.text);
    ck_assert(got && n == strlen(text) && !strcmp(got, text));
    mem_free(got);
}

static void expect_untrusted(const char *name, const char *says)
{
    char *got;
    size_t n;

    ck_assert_int_eq(cache_read(at(name), 100, &got, &n, &e), ERR_IO);
    ck_assert_ptr_null(got);
    ck_assert_msg(strstr(e.text, says) && strstr(e.text, folder), "%s", e.text);
}

static int entries(void)
{
    DIR *dir = opendir(folder);
    int n = 0;

    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

START_TEST(a_cache_keeps_what_it_is_given)
{
    struct stat st;
    char *got;
    size_t n;

    rmdir(folder);
    /* neither the folder nor the file */
    ck_assert_int_eq(cache_read(at("v"), 100, &got, &n, &e), 0);
    ck_assert_ptr_null(got);
    ck_assert_int_eq(cache_write(path, "good\n", 5, &e), 0);
    expect_kept("v", "good\n");
    ck_assert_int_eq(cache_write(path, "better\n", 7, &e), 0);
    expect_kept("v", "better\n");
    ck_assert_int_eq(entries(), 1); /* no temporary stays */
    ck_assert(stat(folder, &st) == 0 && (st.st_mode & 0777) == 0700);
    ck_assert(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    ck_assert_int_eq(cache_read(path, 3, &got, &n, &e), ERR_INPUT);
}
END_TEST

/* Nothing is written where a link points, and nothing is read through one. */
START_TEST(a_cache_follows_no_links)
{
    char victim[sizeof path];

    put("victim", "mine");
    snprintf(victim, sizeof victim, "%s", path);
    ck_assert_int_eq(symlink(victim, at("v")), 0);
    expect_untrusted("v", "");
    ck_assert_int_eq(cache_write(at("v"), "good\n", 5, &e), 0);
    expect_kept("v", "good\n");
    expect_kept("victim", "mine");
    ck_assert_int_eq(mkfifo(at("pipe"), 0600), 0);
    expect_untrusted("pipe", "no file of this user alone");
}
END_TEST

START_TEST(a_cache_trusts_its_owner_alone)
{
    put("v", "good\n");
    chmod(path, 0622);
    expect_untrusted("v", "remove it");
    chmod(path, 0644);
    expect_kept("v", "good\n");
    chmod(folder, 0770);
    expect_untrusted("v", "chmod go-w");
    ck_assert_int_eq(cache_write(at("w"), "x", 1, &e), ERR_IO);
    chmod(folder, 0755);
    expect_kept("v", "good\n");
    if (geteuid() != 0)
        return; /* only root can give files away */
    ck_assert_int_eq(chown(at("v"), 12345, 12345), 0);
    expect_untrusted("v", "remove it");
    ck_assert_int_eq(chown(folder, 12345, 12345), 0);
    expect_untrusted("v", "belongs to another user");
    ck_assert_int_eq(cache_check(folder, &e), ERR_IO);
    ck_assert_msg(strstr(e.text, "--cache-dir"), "%s", e.text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("files");
    TCase *t = tcase_create("files");

    tcase_add_checked_fixture(t, fresh_folder, NULL);
    tcase_add_test(t, reading_takes_files_and_waits_for_nobody);
    tcase_add_test(t, writing_into_a_pipe_needs_a_reader);
    tcase_add_test(t, folders_are_private);
    tcase_add_test(t, a_cache_keeps_what_it_is_given);
    tcase_add_test(t, a_cache_follows_no_links);
    tcase_add_test(t, a_cache_trusts_its_owner_alone);
    suite_add_tcase(s, t);
    return support_run(s);
}
