"""Questions of chatterbot-corpus that have one short answer, and the answers that are right.

Left out: opinions, records that pass, films, songs and stars, and what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

FILE = "chatterbot_corpus/data/english/trivia.yml"

# How a question begins = its answers, parted by |.
RIGHT = """
Who was the 37th President = Richard Nixon|Nixon|Richard M. Nixon
What year was President John F. Kennedy = 1963
What was the name of the first artificial Earth satellite = Sputnik 1|Sputnik
A spinning disk, in which = Gyroscope
The Hubble Space Telescope, = Edwin Hubble|Hubble
What is the name of the nearest major galaxy = Andromeda Galaxy|Andromeda
The Celtic Shelf, = Europe
Dolphins use a sense, = Echolocation
In a website browser address bar = World Wide Web
According to Greek mythology who was the first woman = Pandora
Which African country was formerly known as Abyssinia = Ethiopia
In which European city would you find Orly airport = Paris
The only known monotremes = Platypus|Duck-billed platypus
Fissures, vents and plugs = Volcano|Volcanoes|Volcanos
Which author wrote the 'Winnie-the-Pooh' = A. A. Milne|Milne|Alan Alexander Milne
Which Dutch artist painted "Girl with a Pearl = Vermeer|Johannes Vermeer|Jan Vermeer
What is the tiny piece at the end of a shoelace = Aglet
In the United Kingdom, what is the day after Christmas = Boxing Day
Which of Shakespeare’s plays is the longest = Hamlet
What is the softest mineral = Talc
Who was the first female Prime Minister of Great Britain = Margaret Thatcher|Thatcher
How many ribs = 24
What is the world’s biggest island = Greenland
What is the smallest ocean = Arctic|Arctic Ocean
What color eyes do most humans = Brown
In which city was Anne Frank’s hiding place = Amsterdam
What is the largest type of deer = Moose|Elk
What is the name of the Earth’s largest ocean = Pacific|Pacific Ocean
What country won the very first FIFA World Cup = Uruguay
Which planet is the hottest = Venus
Which country produces the most coffee = Brazil
What is the common name for dried plums = Prunes|Prune
What does BMW stand for = Bavarian Motor Works
Which two countries share the longest = Canada and the USA|Canada and the United States|\
the United States and Canada|USA and Canada|US and Canada|Canada and the United States of America|\
Canada and the US|Canada and USA|Canada and US|Canada and United States
What is the smallest country in the world = Vatican City|Vatican|Holy See|Vatican City State
How many hearts does an octopus = 3
How many eyes does a bee have = 5
Who was the first woman to win a Nobel = Marie Curie|Curie|Marie Sklodowska Curie|Madame Curie
What was the first state = Delaware
What is the painting ‘La Gioconda’ = Mona Lisa
Ludwig Van Beethoven was born in 1770 = Bonn
Water as a pH level = 7
Which horoscope sign has a crab = Cancer
The Statue of Liberty was given to the US = France
Which US city is known as the City of Brotherly Love = Philadelphia
What substance are nails made = Keratin
Where is the Sea of Tranquility = The moon|On the moon
Which kind of bulbs were once exchanged = Tulips|Tulip
Which chess piece can only move diagonally = Bishop
Which country was the Caesar salad = Mexico
On which ship did Charles Darwin = HMS Beagle|Beagle
What is the most common letter in the English alphabet = E
What is the only state that borders just one other = Maine
What is a community of ants called = Colony
Who was said to “float like a butterfly = Muhammad Ali|Ali|Cassius Clay|Muhammed Ali
How many signs are there in the Zodiac = 12
What object is said to bring bad luck = Mirror
Which country did bagels originate = Poland
What is the name for the group of men who elect a Pope = College of Cardinals|Cardinals|Conclave
What do you call filo pastry = Baklava
What is the Jewish New Year called = Rosh Hashanah
What book starts with the line “Call me Ishmael = Moby Dick
What is the first element on the Periodic = Hydrogen
What object did Ben Franklin attach = Key|Metal key
What does a Scoville unit measure = Spiciness|Heat|Hotness|Pungency|Spiciness of peppers
What is an ice hockey puck made from = Rubber|Vulcanized rubber
How many red stripes are there on the American = 7
What is Japanese sake made from = Rice|Fermented rice
As what type of beans are chickpeas = Garbanzo|Garbanzo beans
Which country is the largest producer of vanilla = Madagascar
What is the only fruit that has its seeds on the outside = Strawberry|Strawberries
What is the only metal that is a liquid = Mercury
Who was the only US President to resign = Richard Nixon|Nixon|Richard M. Nixon
In which city did Hitler commit suicide = Berlin
What U.S. newspaper is nicknamed “the Gray Lady” = New York Times
What’s the most populous city in the United States = New York City|New York
What’s the brightest star in the sky = Sirius|Sun
Carrots are a good source of which vitamin = Vitamin A|A
What is the driest continent = Antarctica
Which US state has the longest cave system = Kentucky
What blood type qualifies as a universal donor = O negative|O|Type O|Type O negative|O-
What is the most abundant metal in the Earth’s crust = Aluminium
What is the most abundant element in the universe = Hydrogen
What was the predecessor to the United Nations = League of Nations
A flamboyance is a group of what = Flamingos|Flamingo|Flamingoes
What color is a polar bear’s skin = Black
What is the largest lizard = Komodo dragon
Europe is separated from Africa by which sea = Mediterranean|Mediterranean Sea
Canberra is the capital city of which country = Australia
New York City comprises how many boroughs = 5
Which nuts are used to make marzipan = Almonds|Almond
Botany is the scientific study of what = Plants|Plant life
Tanks were used in battle for the first time = World War I|First World War|World War 1|WWI|\
World War One|The Great War
Squab is a name given to the young of which bird = Pigeon
Which Italian fascist leader = Mussolini|Benito Mussolini
If a male donkey is a jack = Jenny|Jennet
In what country did carving jack o’ lanterns = Ireland
What is the largest planet in our solar system = Jupiter
What has a gravitational pull so strong = Black hole
What vitamin does the sun’s = Vitamin D|D|D3|Vitamin D3
What is “jaggery,” = Sugar|Unrefined sugar|Cane sugar
Nepal is located on which continent = Asia
What does a seismologist study = Earthquakes|Seismic waves|Earthquake
Which sea is located in Israel and Jordan = Dead Sea|Dead
What are the bones in the fingers called = Phalanges
What particle in an atom has a positive charge = Proton|Protons
What is the biggest artery in the human body = Aorta
The tuba is the largest member = Brass
Which is the main substance used to make a crayon = Wax|Paraffin wax|Paraffin
Which artist painted, “Guernica” = Pablo Picasso|Picasso
Which art movement is Salvador Dali = Surrealism|Surrealist
In what city did Princess Diana suffer = Paris
What grows from an acorn = Oak tree|Oak
Which U.S. state has “Garden State” = New Jersey
What is the main ingredient in falafel = Chickpeas|Chickpea|Garbanzo beans|Ground chickpeas
What currency is used in South Africa = Rand|South African rand
Port-au-Prince is the capital of which = Haiti
What is the most populous city in Canada = Toronto
Which President of South Africa ordered = F. W. de Klerk|De Klerk|Frederik Willem de Klerk
Islamabad is the capital of which country = Pakistan
American pioneer, John Chapman = Apple|Apple trees
Where is the uvula = Throat|In the throat|Mouth|In the mouth
What gas makes soda bubbly = Carbon dioxide|CO2
Who preceded Fidel Castro = Fulgencio Batista|Batista
The Da Vinci Code opens = Louvre
Which insect can indicate the air temperature = Cricket
Blueberries are native to which continent = North America
What type of lens has a thin middle = Concave
Which young girl helped drive the English = Joan of Arc|Jeanne d'Arc
"""


def questions(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """What is asked and what is right. Every beginning must be of one question."""
    corpus = yaml.safe_load((folder / FILE).read_text("utf-8"))["conversations"]
    asked = [" ".join(pair[0].split()) for pair in corpus]
    for line in RIGHT.replace("\\\n", "").strip().splitlines():
        beginning, answers = (part.strip() for part in line.split(" ="))
        (question,) = {each for each in asked if each.startswith(beginning)}
        yield question, answers.split("|")
