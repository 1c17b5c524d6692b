/* See code_look.h. One line at a time: constructs across lines (a long comment) are not
 * highlighted. */
#include "ui/code_look.h"

#include "ui/look.h"

#include <stdbool.h>
#include <string.h>

#define C_WORDS                                                                                  \
    " auto break case char const continue default do double else enum extern float for goto if " \
    "inline int long register return short signed sizeof static struct switch typedef union "    \
    "unsigned void volatile while bool true false NULL "

static const struct {
    const char *names;   /* of a fence, surrounded by blanks */
    const char *comment; /* starts a comment to the end of the line; "" none */
    const char *quotes;  /* of strings */
    const char *words;   /* keywords, surrounded by blanks */
} languages[] = {
    {" c h ", "//", "\"'", C_WORDS},
    {" c++ cpp cc cxx hpp ", "//", "\"'",
     C_WORDS "class namespace template typename using virtual override public private protected "
             "new delete this nullptr try catch throw constexpr operator friend "},
    {" python py python3 ", "#", "\"'",
     " and as assert async await break class continue def del elif else except False finally for "
     "from global if import in is lambda None nonlocal not or pass raise return True try while "
     "with yield "},
    {" javascript js typescript ts jsx tsx ", "//", "\"'`",
     " async await break case catch class const continue default delete do else export extends "
     "false finally for from function if import in instanceof interface let new null of return "
     "static super switch this throw true try type typeof undefined var void while yield "},
    {" rust rs ", "//", "\"",
     " as async await break const continue crate else enum extern false fn for if impl in let loop "
     "match mod move mut pub ref return self Self static struct super trait true type unsafe use "
     "where while "},
    {" go golang ", "//", "\"'`",
     " break case chan const continue default defer else fallthrough false for func go goto if "
     "import interface map nil package range return select struct switch true type var "},
    {" java kotlin ", "//", "\"'",
     " abstract boolean break byte case catch char class const continue default do double else "
     "enum extends false final finally float for fun if implements import instanceof int "
     "interface long new null override package private protected public return short static "
     "super switch this throw throws true try val var void while "},
    {" sh bash shell zsh console ", "#", "\"'",
     " case do done elif else esac export fi for function if in local return then until while "
     "echo cd set unset source exit "},
    {" sql ", "--", "'",
     " select from where and or not insert into values update set delete create table drop alter "
     "join left right inner outer on group by order having limit as distinct union null is in "
     "SELECT FROM WHERE AND OR NOT INSERT INTO VALUES UPDATE SET DELETE CREATE TABLE DROP ALTER "
     "JOIN LEFT RIGHT INNER OUTER ON GROUP BY ORDER HAVING LIMIT AS DISTINCT UNION NULL IS IN "},
    {" lua ", "--", "\"'",
     " and break do else elseif end false for function goto if in local nil not or repeat return "
     "then true until while "},
    {" ruby rb ", "#", "\"'",
     " begin break case class def do else elsif end ensure false for if in module next nil not or "
     "redo rescue retry return self super then true undef unless until when while yield "},
    {" json yaml yml toml ini ", "#", "\"'", " true false null yes no on off "},
};

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Whether the word is in a list of words surrounded by blanks. */
static bool listed(const char *list, const char *word, size_t n)
{
    for (const char *p = list; n && (p = strchr(p, ' ')) && p[1]; p++)
        if (strncmp(p + 1, word, n) == 0 && p[1 + n] == ' ')
            return true;
    return false;
}

int code_language(const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof languages / sizeof languages[0]; i++)
        if (listed(languages[i].names, word, n))
            return (int)i;
    return -1;
}

/* End of the string that starts at s[i]. */
static size_t string_end(const char *s, size_t i, size_t n)
{
    char quote = s[i++];

    while (i < n && s[i] != quote)
        i += s[i] == '\\' && i + 1 < n ? 2 : 1;
    return i < n ? i + 1 : n;
}

void code_look(int language, const char *line, size_t n, uint8_t *looks)
{
    size_t mark;

    if (language < 0)
        return;
    mark = strlen(languages[language].comment);
    for (size_t i = 0; i < n;) {
        size_t end = i + 1;
        uint8_t look = LOOK_CODE;

        if (n - i >= mark && memcmp(line + i, languages[language].comment, mark) == 0) {
            end = n;
            look = LOOK_COMMENT;
        } else if (strchr(languages[language].quotes, line[i]) && line[i]) {
            end = string_end(line, i, n);
            look = LOOK_STRING;
        } else if (is_word(line[i])) {
            while (end < n && is_word(line[end]))
                end++;
            if (listed(languages[language].words, line + i, end - i))
                look = LOOK_KEYWORD;
        }
        memset(looks + i, look, end - i);
        i = end;
    }
}
