/* screen.c: owns the terminal and its colours. Must never leave the terminal in its care when the
 * process ends. */
#include "client/top/screen.h"

#include <errno.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>

#include <curses.h>

#include "base/macros.h"
#include "client/top/keys.h"

#define ESCAPE_MS 25 /* how long the rest of a key's sequence may take */

static SCREEN *screen;
static bool colours;

bool screen_is_unicode(void)
{
        const char *type = getenv("TERM");

        /* The console of Linux reads UTF-8, but its font has few block characters. */
        return strcmp(nl_langinfo(CODESET), "UTF-8") == 0 && !(type && strcmp(type, "linux") == 0);
}

/* ---- colours ---- */

/* Readable below black text, and on both dark and light terminals. */
static const short hues_256[FRAME_HUES] = {75,  114, 215, 176, 80,  186,
                                           211, 117, 150, 180, 147, 209};
static const short hues_8[] = {COLOR_CYAN, COLOR_GREEN,   COLOR_YELLOW,
                               COLOR_BLUE, COLOR_MAGENTA, COLOR_RED};

static short hue(unsigned n)
{
        return COLORS >= 256 ? hues_256[n] : hues_8[n % ARRAY_SIZE(hues_8)];
}

/* The colours of the other styles, for 256 colours and for 8; -1: the terminal's own. */
static const struct look {
        short fore, back, fore_8, back_8;
        attr_t attributes, plain; /* plain: without colours */
} looks[STYLE_HUE] = {
        [STYLE_PLAIN] = {-1, -1, -1, -1, A_NORMAL, A_NORMAL},
        [STYLE_DIM] = {245, -1, -1, -1, A_NORMAL, A_NORMAL},
        [STYLE_BOLD] = {-1, -1, -1, -1, A_BOLD, A_BOLD},
        [STYLE_HEAD] = {16, 108, COLOR_BLACK, COLOR_GREEN, A_NORMAL, A_REVERSE},
        [STYLE_SORTED] = {16, 80, COLOR_BLACK, COLOR_CYAN, A_NORMAL, A_REVERSE | A_BOLD},
        [STYLE_RUNS] = {71, -1, COLOR_GREEN, -1, A_BOLD, A_BOLD},
        [STYLE_WAITS] = {178, -1, COLOR_YELLOW, -1, A_NORMAL, A_NORMAL},
        [STYLE_MOVES] = {74, -1, COLOR_CYAN, -1, A_NORMAL, A_NORMAL},
        [STYLE_PAUSED] = {170, -1, COLOR_MAGENTA, -1, A_NORMAL, A_NORMAL},
        [STYLE_BAD] = {203, -1, COLOR_RED, -1, A_BOLD, A_BOLD},
        [STYLE_KEY] = {16, 80, COLOR_BLACK, COLOR_CYAN, A_NORMAL, A_REVERSE},
        [STYLE_USE] = {71, -1, COLOR_GREEN, -1, A_NORMAL, A_NORMAL},
        [STYLE_BUS] = {74, -1, COLOR_CYAN, -1, A_NORMAL, A_NORMAL},
        [STYLE_OTHERS] = {16, 246, COLOR_BLACK, COLOR_WHITE, A_NORMAL, A_NORMAL},
};
#define SELECTED (STYLES + 1) /* number of the pair of the selected row */

static void set_pairs(void)
{
        bool many;

        (void)start_color(); /* this sets COLORS */
        (void)use_default_colors();
        many = COLORS >= 256;
        for (unsigned i = 0; i < STYLE_HUE; i++)
                init_pair((short)(i + 1), many ? looks[i].fore : looks[i].fore_8,
                          many ? looks[i].back : looks[i].back_8);
        for (unsigned i = 0; i < FRAME_HUES; i++) {
                init_pair((short)(STYLE_HUE + i + 1), hue(i), -1);
                init_pair((short)(STYLE_BAR + i + 1), many ? 16 : COLOR_BLACK, hue(i));
        }
        init_pair(SELECTED, many ? 16 : COLOR_BLACK, many ? 80 : COLOR_CYAN);
}

static void set_style(unsigned style)
{
        const bool marked = style & STYLE_SELECTED;
        const unsigned n = STYLE_OF(style);
        const bool row = marked && !(n >= STYLE_HUE && n < STYLE_BAR);

        if (colours)
                (void)attr_set(row             ? A_NORMAL
                               : n < STYLE_HUE ? looks[n].attributes
                                               : A_NORMAL,
                               row ? SELECTED : (short)(n + 1), NULL);
        else
                (void)attr_set((n < STYLE_HUE ? looks[n].plain : A_NORMAL) |
                                       (marked ? A_REVERSE : 0),
                               0, NULL);
}

/* ---- the terminal ---- */

int screen_open(bool *ret_colours)
{
        const char *none = getenv("NO_COLOR");

        screen = newterm(NULL, stdout, stdin);
        if (!screen || !tigetstr("cup") || tigetstr("cup") == (char *)-1) {
                screen_close();
                return -ENOTTY;
        }
        colours = tigetnum("colors") >= 8 && !(none && *none);
        if (colours)
                set_pairs();
        (void)cbreak();
        (void)noecho();
        (void)nonl();
        (void)keypad(stdscr, true);
        (void)nodelay(stdscr, true);
        (void)curs_set(0);
        (void)set_escdelay(ESCAPE_MS);
        *ret_colours = colours;
        return 0;
}

void screen_close(void)
{
        if (!screen)
                return;
        (void)endwin();
        delscreen(screen);
        screen = NULL;
}

void screen_size(int *ret_width, int *ret_height)
{
        getmaxyx(stdscr, *ret_height, *ret_width);
}

void screen_draw(const struct frame *f)
{
        for (int y = 0; y < f->height; y++) {
                const struct cell *line = &f->cells[y * f->width];

                for (int x = 0; x < f->width;) {
                        wchar_t run[512];
                        const unsigned style = line[x].style;
                        const int from = x;
                        int n = 0;

                        for (; x < f->width && n < (int)ARRAY_SIZE(run) && line[x].style == style;
                             x++)
                                if (line[x].c)
                                        run[n++] = line[x].c;
                        set_style(style);
                        (void)mvaddnwstr(y, from, run, n);
                }
        }
        (void)refresh();
}

bool screen_key(unsigned *ret)
{
        static const struct {
                int curses;
                unsigned key;
        } keys[] = {
                {KEY_UP, KEYS_UP},
                {KEY_DOWN, KEYS_DOWN},
                {KEY_PPAGE, KEYS_PAGE_UP},
                {KEY_NPAGE, KEYS_PAGE_DOWN},
                {KEY_HOME, KEYS_HOME},
                {KEY_END, KEYS_END},
                {KEY_LEFT, KEYS_LEFT},
                {KEY_RIGHT, KEYS_RIGHT},
                {KEY_BACKSPACE, KEYS_BACKSPACE},
                {KEY_ENTER, '\r'},
        };
        wint_t c;
        int r;

        while ((r = get_wch(&c)) != ERR) {
                *ret = c;
                if (r == OK)
                        return true;
                for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                        if (keys[i].curses == (int)c) {
                                *ret = keys[i].key;
                                return true;
                        }
        }
        return false;
}
