# Completion of sublet's command line for bash. The words come from `sublet help`.

# Prints the names that help lists: of all commands, or the options of command $1 (with $2 "--").
_sublet_names() {
        sublet help $1 2>/dev/null | sed -n "s/^  \($2[a-z-]\{1,\}\).*/\1/p"
}

# Prints the words that may follow $2 in the command $1: "swap overflow managed" after --memory.
_sublet_values() {
        sublet help "$1" 2>/dev/null | sed -n "s/.* $2 \([a-zA-Z]*|[a-zA-Z|]*\).*/\1/p" | tr '|' '\n' | grep '^[a-z]'
}

# Prints the numbers and the names of the programs that status shows; a name that is cut ends in "+".
_sublet_programs() {
        sublet status 2>/dev/null | sed -n 's/^ *\([0-9]\{1,\}\)  *[^ ]*  *\([^ ]*[^ +]\)  .*/\1 \2/p' | tr ' ' '\n'
}

# Sets i to the first word of the program of `sublet run`, `measure` or `submit`; false if the cursor is not behind that word.
_sublet_program() {
        local taking
        taking=" = $(sublet help "$command" 2>/dev/null | sed -n 's/^  \(--[a-z-]*\(, -[a-z]\)\{0,1\}\) [^ ].*/\1/p' | tr ',\n' '  ')" # bash makes = a word
        for ((i = 2; i < COMP_CWORD; i++)); do
                case ${COMP_WORDS[i]} in
                --)
                        i=$((i + 1))
                        break
                        ;;
                = | -*) [[ $taking != *" ${COMP_WORDS[i]} "* ]] || i=$((i + 1)) ;;
                *) break ;;
                esac
        done
        [ "$i" -lt "$COMP_CWORD" ]
}

_sublet() {
        local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} i words
        COMPREPLY=()
        if [ "$COMP_CWORD" -eq 1 ] || [ "$command" = help ]; then
                words=$(_sublet_names "" "")
        elif [ "$command" = jupyter ] && [ "$COMP_CWORD" -eq 2 ]; then
                words=install
        elif [ "$command" = bench ] && [ "$COMP_CWORD" -eq 2 ] && [[ $cur != -* ]]; then
                words=pairs
        elif [ "$command" = bench ] && [ "${COMP_WORDS[2]}" = pairs ] && [[ $cur == -* ]]; then
                words=$(sublet bench pairs --help 2>/dev/null | sed -n "s/^  \(--[a-z-]\{1,\}\).*/\1/p")
        elif [ "$command" = bench ] && [ "$before" = --ways ]; then
                words="shared sliced turns"
        elif [[ $command == @(run|measure|submit) ]] && _sublet_program; then
                declare -F _command_offset >/dev/null && _command_offset "$i" # a function of bash-completion
                return
        elif [[ $cur == -* ]]; then
                words=$(_sublet_names "$command" --)
        elif [ "$before" = --daemon ]; then
                mapfile -t COMPREPLY < <(compgen -d -- "$cur")
                return
        elif [ "$command" = top ] && [ "$before" = --sort ]; then
                words=$(sublet top --sort "" 2>&1 | sed 's/.*: //; s/,//g')
        elif [ "$before" = --mix ]; then
                words=$(sublet bench --list 2>/dev/null | sed -n 's/^\([a-z0-9_]\{1,\}\)  *.*/\1/p')
        elif [[ $before == --profile* ]]; then
                return # bash completes file names
        elif [ "$before" = set ]; then
                words=$(sublet set 2>/dev/null | cut -d" " -f1)
                [ -n "$words" ] || words="mode quantum"
        elif [ "$command" = set ] && [ "$before" = mode ]; then
                words="auto exclusive off"
        elif [ "$before" = --pid ] || sublet help "$command" 2>/dev/null | sed -n 1p | grep -q PID; then
                words=$(_sublet_programs)
        else
                words=$(_sublet_values "$command" "$before")
                [ -n "$words" ] || [[ $command != @(run|measure|submit) ]] || words=$(compgen -c -- "$cur")
        fi
        # Bash completes file names where there is no word; these commands take none.
        [[ $command != @(pause|resume|evict|set|priority|status) ]] || compopt +o default 2>/dev/null
        [ -z "$words" ] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -o default -F _sublet sublet
