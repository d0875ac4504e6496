# shellcheck shell=bash
# For scripts that run many parts, each with a log of its own: to be sourced.
#
#   out=DIR; . tools/parts.sh
#   part NAME COMMAND...          # the log is DIR/NAME.log; a line says how it ended
#   finish_parts                  # `N passed, N failed`; its status is 1 if any failed

#   until_ready PORT PID [SECONDS]  # of a server: says how long it took; 1 where it ended, or after 300 s

passed=0
failed=()

until_ready() {
  local start=$SECONDS
  while [ $((SECONDS - start)) -lt "${3:-300}" ]; do
    if python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1])' "http://127.0.0.1:$1/readyz" 2>/dev/null
    then echo "ready after $((SECONDS - start)) s"; return 0; fi
    kill -0 "$2" 2>/dev/null || return 1
    sleep 0.5
  done
  return 1
}

part() {
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$out/$name.log" 2>&1; then
    echo "ok      $name ($((SECONDS - start)) s)"
    passed=$((passed + 1))
  else
    echo "FAILED  $name ($((SECONDS - start)) s): $out/$name.log, which ends"
    tail -n 25 "$out/$name.log" | cut -c1-300
    failed+=("$name")
  fi
}

finish_parts() {
  echo "$passed passed, ${#failed[@]} failed"
  [ ${#failed[@]} -eq 0 ]
}
