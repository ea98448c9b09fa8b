#!/bin/sh
# Writes sublet.1 and subletd.8 into a folder, from the help of the built programs. The pages name the folder of the
# documentation, which explains at length.
#
#   man.sh SUBLET SUBLETD DOCUMENTATION FOLDER
set -eu
sublet=$1 subletd=$2 documentation=$3 folder=$4

escape() { sed 's/\\/\\e/g; s/-/\\-/g; s/^\([.'\'']\)/\\\&\1/'; }

title() { # NAME SECTION LINE
        printf '.TH %s %s "" "%s"\n.SH NAME\n%s \\- %s\n' "$(echo "$1" | tr a-z A-Z)" "$2" \
                "$("$sublet" --version)" "$1" "$3"
}

# Turns options into paragraphs: lines "  --name NAME   text", or with the text on the next line.
options() {
        awk '/^  -/ { line = substr($0, 3); i = match(line, /   *[^ ]/)
                      print ".TP\n.B " (i ? substr(line, 1, i - 1) : line)
                      if (i) print substr(line, i + RLENGTH - 1); next }
             /^   / { sub(/^ +/, ""); print }'
}

# Turns the rows "  name text" under this heading of subletd's help into paragraphs.
rows() { # HEADING
        "$subletd" --help | sed -n "/^$1/,/^\$/p" | sed '/^  /!d; s/^  \([A-Za-z_]*\) */.TP\n.B \1\n/' | escape | sed 's/^\\&\././'
}

{
        title sublet 1 'programs share an NVIDIA GPU, each with all of its memory'
        printf '.SH SYNOPSIS\n.B sublet\n.I command\n.RI [ argument ...]\n.SH COMMANDS\n'
        for command in $("$sublet" help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p'); do
                "$sublet" help "$command" | sed -n '1s/^usage: \(.*\)/.SS "\1"/p; 2s/$/./p' | sed 's/-/\\-/g'
                "$sublet" help "$command" | sed 1,2d | escape | sed 's/^  \\-\\-/  --/' | options | sed 's/^\(\.B \)--/\1\\-\\-/'
        done
        printf '.SH ENVIRONMENT\n'
        "$sublet" help variables | sed 1d | escape | sed -n 's/^SUBLET/.TP\n.B SUBLET/; s/^  *//; /./p'
        cat <<-END
		.SH EXIT STATUS
		0; 1 when it could not be done; 2 when it was asked wrongly. sublet run: 125 when parts of sublet are missing, 126 when the
		program cannot be executed, 127 when there is none, else what the program answers.
		.SH SEE ALSO
		.BR subletd (8),
		.I $documentation/docs/operations.md
		(variables, what status shows; every message is in messages.md)
	END
} >"$folder/sublet.1"

{
        title subletd 8 "$("$subletd" --help | sed -n '/^Shares/,/^$/p' | tr '\n' ' ' | sed 's/ *$//; s/\.$//; s/^S/s/')"
        printf '.SH SYNOPSIS\n.B subletd\n.RI [ option ...]\n.SH OPTIONS\n'
        "$subletd" --help | sed -n '/^  --/,/^$/p' | sed '/^$/,$d' | escape | sed 's/^  \\-\\-/  --/' | options |
                sed 's/^\(\.B \)--/\1\\-\\-/'
        printf '.SH SETTINGS\n'
        rows Settings
        printf '.SH CLASSES\n'
        rows Classes
        printf '.SH ENVIRONMENT\n'
        rows Variables
        printf '.SH EXIT STATUS\n'
        "$subletd" --help | sed -n 's/^Exit status: //p' | escape
        cat <<-END
		.SH FILES
		.I /etc/sublet/subletd.conf
		and
		.IR /etc/sublet/subletd.conf.d/*.conf :
		settings of the daemon in /run/sublet;
		.I $documentation/deploy/subletd.conf
		is a sample
		.SH SEE ALSO
		.BR sublet (1),
		.I $documentation/docs/configuration.md
	END
} >"$folder/subletd.8"
