/* bench_plot.c: owns the result as a picture: SVG with a bar for each row, written without a
 * library, because it has nothing but rectangles, one line and text. Must never decide anything. */
#include "lab/bench/bench.h"

#include "base/macros.h"

#define WIDTH        980
#define LEFT         260 /* width of the names */
#define RIGHT        310 /* width of the figures behind the bars */
#define ROW_HEIGHT   22
#define HEAD_HEIGHT  56
#define GROUP_HEIGHT 44
#define CLIP         2.5 /* a cut bar is so many times as long as what it is compared with */

static const char *const colours[] = {
        [BENCH_ALONE] = "#b8b8b8", [BENCH_SERIAL] = "#808080",  [BENCH_ALONE_SUBLET] = "#9ecfb0",
        [BENCH_PLAIN] = "#5b8fc9", [BENCH_MANAGED] = "#d0604f", [BENCH_SUBLET] = "#2e9e5b",
};

static void print_text(FILE *out, double x, double y, const char *style, const char *text)
{
        (void)fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
        for (const char *p = text; *p; p++)
                switch (*p) {
                case '<':
                        (void)fputs("&lt;", out);
                        break;
                case '&':
                        (void)fputs("&amp;", out);
                        break;
                default:
                        (void)fputc((unsigned char)*p < ' ' ? ' ' : *p, out);
                }
        (void)fputs("</text>\n", out);
}

/* Returns the seconds of the row that row i is compared with; 0: there is none. */
static double compared_with(const struct bench_row *rows, size_t n, size_t i)
{
        const struct bench_row *than = bench_compared_with(rows, n, &rows[i]);

        return than ? bench_median(than->seconds, than->n) : 0;
}

/* Returns the seconds that the longest bar of the group of row i stands for. */
static double scale(const struct bench_row *rows, size_t n, size_t i)
{
        const double than = compared_with(rows, n, i);
        double longest = than;

        for (size_t k = i; k < n && (k == i || !bench_begins_group(rows, k)); k++)
                longest = MAX(longest, MAX(bench_median(rows[k].seconds, rows[k].n),
                                           bench_longest(rows[k].longest, rows[k].n)));
        /* Only Unified Memory that thrashes is cut: other bars are what the picture is for. */
        for (size_t k = i; k < n && (k == i || !bench_begins_group(rows, k)); k++)
                if (rows[k].way == BENCH_MANAGED && rows[k].role->figure == BENCH_TIME &&
                    than > 0 && longest > CLIP * than)
                        return CLIP * than;
        return longest > 0 ? longest : 1;
}

static void print_bar(FILE *out, const struct bench_row *row, double y, double most)
{
        const double seconds = bench_median(row->seconds, row->n), room = WIDTH - LEFT - RIGHT;
        const double longest = bench_longest(row->longest, row->n);
        double width = room * MIN(seconds, most) / most;
        const double waited = bench_median(row->waiting, row->n);
        const uint64_t handoffs = bench_median_count(row->handoffs, row->n);
        char way[BENCH_TEXT_MAX], text[BENCH_TEXT_MAX];
        int length;

        print_text(out, LEFT - 8, y + 15, "text-anchor=\"end\"", bench_way_text(row, way));
        if (row->state != BENCH_MEASURED) {
                print_text(out, LEFT + 4, y + 15, "fill=\"#a03020\"", row->note);
                return;
        }
        (void)fprintf(
                out,
                "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>%.3f "
                "s</title></rect>\n",
                LEFT, y + 3, width, ROW_HEIGHT - 6, colours[row->way], seconds);
        if (row->role->figure == BENCH_DELAY) {
                length = snprintf(text, sizeof(text), "%.2f s, longest %.2f s", seconds, longest);
                width = room * MIN(MAX(longest, seconds), most) / most;
                (void)fprintf(out, "<path d=\"M%d %.1fh%.1f\" stroke=\"%s\"/>\n", LEFT,
                              y + ROW_HEIGHT / 2.0, width, colours[row->way]);
        } else {
                length = snprintf(text, sizeof(text), "%s%.*f s%s", seconds > most ? ">> " : "",
                                  seconds < 10 ? 2 : 1, seconds,
                                  row->verdict == BENCH_DIFFERENT ? ", WRONG" : "");
        }
        if (row->way == BENCH_SUBLET && handoffs != BENCH_UNKNOWN && waited >= 0)
                (void)snprintf(text + length, sizeof(text) - (size_t)length,
                               "; %llu hand-off%s, %.0f %% waiting", (unsigned long long)handoffs,
                               handoffs == 1 ? "" : "s", 100 * waited);
        /* A white edge keeps the text readable where the dashed line crosses it. */
        print_text(out, LEFT + width + 5, y + 15,
                   "stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\"", text);
}

void bench_print_plot(FILE *out, const struct bench_setting *setting, const struct bench_row *rows,
                      size_t n)
{
        char line[BENCH_LINE_MAX], group[BENCH_TEXT_MAX];
        double y = HEAD_HEIGHT, most = 1, height = HEAD_HEIGHT + 12;

        for (size_t i = 0; i < n; i++)
                height += ROW_HEIGHT + (bench_begins_group(rows, i) ? GROUP_HEIGHT : 0);
        (void)fprintf(out,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
                      "viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
                      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
                      WIDTH, height, WIDTH, height);
        print_text(out, 16, 24, "font-size=\"16\" font-weight=\"bold\"",
                   setting->simulated ? "sublet bench on a SIMULATED card: no GPU's speed"
                                      : "sublet bench: seconds, less is better");
        bench_describe(setting, line);
        print_text(out, 16, 43, "fill=\"#555555\" font-size=\"11\"", line);
        for (size_t i = 0; i < n; i++) {
                if (bench_begins_group(rows, i)) {
                        const double than = compared_with(rows, n, i);
                        size_t in_group = 1;

                        while (i + in_group < n && !bench_begins_group(rows, i + in_group))
                                in_group++;
                        most = scale(rows, n, i);
                        bench_group_text(setting, &rows[i], group);
                        print_text(out, 16, y + 28, "font-size=\"13\" font-weight=\"bold\"", group);
                        y += GROUP_HEIGHT;
                        if (than > 0 && rows[i].role->figure == BENCH_TIME) {
                                const double x = LEFT + (WIDTH - LEFT - RIGHT) * than / most;

                                (void)fprintf(
                                        out,
                                        "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" "
                                        "stroke=\"#808080\" stroke-dasharray=\"3 3\"/>\n",
                                        x, x, y, y + (double)(in_group * ROW_HEIGHT));
                        }
                }
                print_bar(out, &rows[i], y, most);
                y += ROW_HEIGHT;
        }
        (void)fputs("</svg>\n", out);
}
