/* See paper_bundle.h. */
#include "app/lab/paper_bundle.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* What follows the definitions of moetop, work and answer(). */
static const char steps[] =
    "\n"
    "# Everything that is the same on every machine, into the folder $1.\n"
    "derive() {\n"
    "    out=$1\n"
    "    mkdir -p \"$out\"\n"
    "    (cd \"$work\" && answer --stats-json \"$out/stats.json\" --routing-scores "
    "--routing-logprobs \\\n"
    "        --routing-trace \"$out/routing.safetensors\" --lens \"$out/lens.safetensors\" \\\n"
    "        >\"$out/answer.txt\")\n"
    "    (cd \"$out\" && \"$moetop\" --routing-report routing.safetensors --report-json "
    "report.json \\\n"
    "        --report-html report.html --report-figures figures >report.txt)\n"
    "    sed -n 's/.*\"\\(model_sha256\\|tokens_sha256\\|text_sha256\\)\": *\\(\"[^\"]*\"\\).*/\\1 "
    "\\2/p' \\\n"
    "        \"$out/stats.json\" >\"$out/digests.txt\"\n"
    "}\n"
    "derived='answer.txt digests.txt lens.safetensors report.html report.json report.txt\n"
    "    routing.safetensors'\n"
    "\n"
    "if [ \"${1:-}\" = --make ]; then\n"
    "    derive \"$here\"\n"
    "    cd \"$here\"\n"
    "    mv stats.json receipt.json\n"
    "    { \"$moetop\" --version; uname -srm; } >versions.txt\n"
    "    (cd \"$work\" && \"$moetop\" --doctor) >hardware.txt || :\n"
    "    find . -type f ! -name SHA256SUMS | LC_ALL=C sort | xargs sha256sum >SHA256SUMS\n"
    "    exit 0\n"
    "fi\n"
    "\n"
    "status=0\n"
    "if ! (cd \"$here\" && sha256sum --quiet -c SHA256SUMS); then\n"
    "    echo 'a file of this folder is no longer what was written'\n"
    "    status=1\n"
    "fi\n"
    "again=$(mktemp -d)\n"
    "trap 'rm -rf \"$again\"' EXIT\n"
    "derive \"$again\"\n"
    "for file in $derived $(cd \"$here\" && ls figures/*); do\n"
    "    if cmp -s \"$here/$file\" \"$again/$file\"; then\n"
    "        echo \"same       $file\"\n"
    "    else\n"
    "        echo \"DIFFERENT  $file\"\n"
    "        status=1\n"
    "    fi\n"
    "done\n"
    "(cd \"$work\" && \"$moetop\" --replay \"$here/receipt.json\") || status=1\n"
    "exit $status\n";

bool paper_bundle_wanted(const struct options *o)
{
    return o->paper_bundle != NULL;
}

/* As one word of a shell. */
static void put_word(struct strbuf *b, const char *word)
{
    strbuf_putc(b, '\'');
    for (; *word; word++)
        if (*word == '\'')
            strbuf_puts(b, "'\\''");
        else
            strbuf_putc(b, *word);
    strbuf_putc(b, '\'');
}

/* This process's words behind the program's name, without the mode's own. */
static int put_words(struct strbuf *b, struct error *e)
{
    static const char flag[] = "--paper-bundle";
    struct strbuf all = {0};
    char piece[4096];
    ssize_t n;
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC), rc = 0;

    if (fd < 0)
        return error_set(e, ERR_IO, "--paper-bundle: /proc/self/cmdline: %s", strerror(errno));
    while ((n = read(fd, piece, sizeof piece)) > 0)
        strbuf_put(&all, piece, (size_t)n);
    close(fd);
    if (n < 0 || all.failed || !all.len)
        rc = error_set(e, ERR_IO, "--paper-bundle: the command line cannot be read");
    for (const char *word = all.data; rc == 0 && word < all.data + all.len;
         word += strlen(word) + 1) {
        if (word == all.data)
            continue;
        if (strcmp(word, flag) == 0) {
            word += strlen(word) + 1; /* and its folder */
            continue;
        }
        if (strncmp(word, flag, sizeof flag - 1) == 0 && word[sizeof flag - 1] == '=')
            continue;
        strbuf_putc(b, ' ');
        put_word(b, word);
    }
    strbuf_release(&all);
    return rc;
}

static int write_script(const char *path, struct error *e)
{
    struct strbuf b = {0};
    char program[PATH_MAX], work[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    int rc = 0;

    if (n < 0 || !getcwd(work, sizeof work))
        return error_set(e, ERR_IO, "--paper-bundle: the program's path: %s", strerror(errno));
    program[n] = 0;
    strbuf_puts(&b, "#!/bin/sh\n"
                    "# Derives everything in this folder again and says of each file whether it is "
                    "the same, byte for\n"
                    "# byte. MOETOP: another program, WORK: where the command's relative paths "
                    "begin.\n"
                    "#     sh derive.sh         exit status 0: all is the same\n"
                    "set -eu\n"
                    "here=$(cd \"$(dirname \"$0\")\" && pwd)\n"
                    "moetop=${MOETOP:-");
    put_word(&b, program);
    strbuf_puts(&b, "}\nwork=${WORK:-");
    put_word(&b, work);
    strbuf_puts(&b, "}\n\n# The command that is derived.\nanswer() {\n    \"$moetop\"");
    rc = put_words(&b, e);
    strbuf_puts(&b, " \"$@\"\n}\n");
    strbuf_puts(&b, steps);
    if (rc == 0)
        rc = b.failed ? error_set(e, ERR_MEMORY, "out of memory for the script")
                      : file_replace(path, b.data, b.len, e);
    strbuf_release(&b);
    return rc;
}

static int run_script(const char *path, struct error *e)
{
    char *const argv[] = {"sh", (char *)path, "--make", NULL};
    int status, code;
    pid_t pid;

    if ((code = posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ)))
        return error_set(e, ERR_IO, "--paper-bundle: /bin/sh: %s", strerror(code));
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return error_set(e, ERR_IO, "--paper-bundle: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return error_set(e, ERR_IO, "--paper-bundle: a step of %s failed", path);
}

static int check_flags(const struct options *o, struct error *e)
{
    if (!o->prompt && !o->file)
        return error_set(e, ERR_USAGE, "--paper-bundle is of one answer: -p TEXT or -f FILE");
    if (o->seed == OPTION_SEED_RANDOM)
        return error_set(e, ERR_USAGE,
                         "--paper-bundle: give --seed N, so that the answer can be derived again");
    if (o->connect)
        return error_set(e, ERR_USAGE,
                         "--paper-bundle is of a model on this machine: leave --connect away");
    if (o->routing_trace || o->routing_scores || o->routing_logprobs || o->lens || o->stats_json)
        return error_set(
            e, ERR_USAGE,
            "--paper-bundle sets --routing-trace, --routing-scores, --routing-logprobs, --lens and "
            "--stats-json itself: leave them away");
    return 0;
}

/* A folder with files is somebody's. */
static int check_empty(const char *folder, struct error *e)
{
    DIR *d = opendir(folder);
    const struct dirent *entry;
    bool full = false;

    if (!d)
        return error_set(e, ERR_IO, "%s: %s", folder, strerror(errno));
    while ((entry = readdir(d)))
        full = full || (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."));
    closedir(d);
    return full ? error_set(e, ERR_USAGE, "--paper-bundle %s: there are files; name a new folder",
                            folder)
                : 0;
}

int paper_bundle_run(struct options *o, struct error *e)
{
    char path[PATH_MAX];
    int rc;

    if ((rc = check_flags(o, e)) < 0 || (rc = file_make_folders(o->paper_bundle, e)) < 0 ||
        (rc = check_empty(o->paper_bundle, e)) < 0)
        return rc;
    if (snprintf(path, sizeof path, "%s%s/derive.sh", o->paper_bundle[0] == '/' ? "" : "./",
                 o->paper_bundle) >= (int)sizeof path)
        return error_set(e, ERR_USAGE, "--paper-bundle: the folder's name is too long");
    if ((rc = write_script(path, e)) == 0)
        rc = run_script(path, e);
    return rc;
}
